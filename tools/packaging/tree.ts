import { cpSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { programFiles } from '../../src/install/host/programs.ts';
import type { Facts } from './facts.ts';

/** Creates the folder with everything that the program needs except Node, which can be copied anywhere. */
export async function makeTree({ root, name, version, description, arch }: Facts, target: string): Promise<void> {
  rmSync(target, { recursive: true, force: true });
  const native = `node_modules/@koromix/koffi-linux-${arch}`;
  if (!existsSync(join(root, native))) throw new Error(`${native} does not exist: run npm ci without --omit=optional`);
  for (const file of await programFiles(root, arch)) {
    mkdirSync(dirname(join(target, file)), { recursive: true });
    cpSync(join(root, file), join(target, file));
  }
  // Declares that the files are ES modules.
  writeFileSync(
    join(target, 'package.json'),
    `${JSON.stringify({ name, version, description, license: 'Apache-2.0', type: 'module', private: true }, null, 2)}\n`,
  );
  mkdirSync(join(target, 'bin'));
  for (const program of ['cri-resize-shim', 'resizectl'])
    symlinkSync(`../dist/${program}.js`, join(target, 'bin', program));
  // Runs as the plugin of kubectl by its name.
  symlinkSync('../dist/resizectl.js', join(target, 'bin/kubectl-resizectl'));
}
