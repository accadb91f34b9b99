import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Facts } from './facts.ts';

/** Of koffi, which stays outside of the bundle: its sources and their libraries are not needed. */
const KOFFI = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];

/** All that the program needs but Node, to be copied anywhere. Source maps stay behind: they are four fifths of it. */
export function makeTree({ root, name, version, description, arch }: Facts, target: string): void {
  rmSync(target, { recursive: true, force: true });
  const copy = (from: string, to = from): void => {
    mkdirSync(dirname(join(target, to)), { recursive: true });
    cpSync(join(root, from), join(target, to), { recursive: true });
  };
  for (const file of ['cri-resize-shim.js', 'resizectl.js', 'resizectl.1']) copy(`dist/${file}`);
  for (const file of readdirSync(join(root, 'dist/chunks'))) if (file.endsWith('.js')) copy(`dist/chunks/${file}`);
  for (const file of KOFFI) copy(`node_modules/koffi/${file}`);
  const native = `node_modules/@koromix/koffi-linux-${arch}`;
  if (!existsSync(join(root, native))) throw new Error(`${native} is not there: npm ci without --omit=optional`);
  copy(native);
  for (const file of ['proto', 'systemd', 'LICENSE']) copy(file);
  // What Node has to know of the files: that they are modules.
  writeFileSync(
    join(target, 'package.json'),
    `${JSON.stringify({ name, version, description, license: 'Apache-2.0', type: 'module', private: true }, null, 2)}\n`,
  );
  mkdirSync(join(target, 'bin'));
  for (const program of ['cri-resize-shim', 'resizectl'])
    symlinkSync(`../dist/${program}.js`, join(target, 'bin', program));
}
