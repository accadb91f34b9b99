import { mkdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
/** The installed packages. */
export const modules = join(root, 'node_modules');

/** Bundles the daemon, or another program, as tools/build.mjs does, outside dist/. Returns the file. */
export async function buildProgram(entry = 'src/main.ts'): Promise<string> {
  // Below node_modules, so that koffi, which stays outside the bundle, is found.
  const outfile = join(modules, `.cache/test-program/${process.pid}-${basename(dirname(entry))}.js`);
  mkdirSync(dirname(outfile), { recursive: true });
  await build({
    absWorkingDir: root,
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    external: ['koffi'],
    logLevel: 'error',
    banner: {
      js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
    },
  });
  return outfile;
}
