import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** Of koffi, which stays outside of the bundle: its sources and their libraries are not needed. */
const KOFFI = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];

/** Where a folder that brings its own Node has it: the image's installer makes such, for nodes that have none. */
export const OWN_NODE = 'bin/node';

/** Where npm installs the Node that a checkout's lockfile pins. */
export const pinnedNodeOf = (arch: string): string => `node_modules/node-linux-${arch}/bin/node`;

/**
 * All that the program needs but Node, in a checkout that is built or in the folder that `npm run package` makes: paths from there, files
 * and symbolic links. Source maps stay behind: they are four fifths of it. A Node of the folder's own belongs to it too. Rejects when something is not there.
 * @param arch as process.arch
 */
export async function programFiles(root: string, arch: string): Promise<readonly string[]> {
  const chunks = await readdir(join(root, 'dist/chunks'));
  const named = [
    ...['package.json', 'LICENSE'],
    ...['cri-resize-shim.js', 'resizectl.js', 'resizectl.1'].map((file) => `dist/${file}`),
    ...chunks.filter((file) => file.endsWith('.js')).map((file) => `dist/chunks/${file}`),
    ...KOFFI.map((file) => `node_modules/koffi/${file}`),
  ];
  for (const file of named) await lstat(join(root, file));
  const folders = [`node_modules/@koromix/koffi-linux-${arch}`, 'proto', 'systemd'];
  const inside = await Promise.all(folders.map((folder) => filesIn(root, folder)));
  // Links to the two programs, and Node itself where it is brought; a checkout does without.
  const links = await filesIn(root, 'bin').catch(() => []);
  return [...named, ...inside.flat(), ...links].toSorted();
}

/** All files and links in a folder, and in those in it: paths from `root`. */
export async function filesIn(root: string, folder: string): Promise<readonly string[]> {
  const entries = await readdir(join(root, folder), { withFileTypes: true });
  const nested = entries.map((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesIn(root, path) : Promise.resolve([path]);
  });
  return (await Promise.all(nested)).flat();
}
