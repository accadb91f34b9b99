// Bundles the daemon and the repository's tools. One file each: a daemon that reads one file starts in a fraction of
// the time of one that resolves hundreds, and kubelet waits for it.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const entries = {
  'cri-resize-shim': 'src/main.ts',
  'tools/node': 'test/node/main.ts',
  'tools/demo': 'demo/main.ts',
  'tools/demo-inside': 'demo/inside.ts',
  'tools/bench': 'bench/main.ts',
  'tools/conformance': 'test/conformance/main.ts',
  'tools/test': 'test/main.ts',
  'tools/fuzz': 'test/fuzz/main.ts',
  'tools/watch-limits': 'test/e2e/watch-limits.ts',
};

// Built beside and moved into place file by file: a command that runs meanwhile has its whole files.
mkdirSync(join(root, 'dist/tools'), { recursive: true });
const fresh = mkdtempSync(join(root, 'dist/.build-'));
await build({
  absWorkingDir: root,
  entryPoints: Object.fromEntries(Object.entries(entries).filter(([, file]) => existsSync(join(root, file)))),
  outdir: fresh,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  sourcemap: 'linked',
  logLevel: 'warning',
  // koffi loads its native part from its own package folder.
  external: ['koffi'],
  // CommonJS dependencies inside an ESM bundle need a require of their own.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
});
for (const folder of ['.', 'tools']) {
  for (const entry of readdirSync(join(fresh, folder), { withFileTypes: true })) {
    if (entry.isFile()) renameSync(join(fresh, folder, entry.name), join(root, 'dist', folder, entry.name));
  }
}
rmSync(fresh, { recursive: true });
