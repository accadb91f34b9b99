import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** The files of koffi that the program needs. koffi is not bundled; its sources and build files are left out. */
const KOFFI = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];

/** Path of Node in a program folder that includes it. The installer of the image creates such folders, for hosts without Node. */
export const OWN_NODE = 'bin/node';

/**
 * Lists the files and symbolic links of the program, relative to `root`: a built checkout or the folder of `npm run package`. Includes
 * Node only if the folder has it. Leaves out source maps, four fifths of the size. Rejects if a file is missing.
 * @param arch as process.arch
 */
export async function programFiles(root: string, arch: string): Promise<readonly string[]> {
  const chunks = await readdir(join(root, 'dist/chunks'));
  const named = [
    'package.json',
    'LICENSE',
    ...['cri-resize-shim.js', 'resizectl.js', 'resizectl.1'].map((file) => `dist/${file}`),
    ...chunks.filter((file) => file.endsWith('.js')).map((file) => `dist/chunks/${file}`),
    ...KOFFI.map((file) => `node_modules/koffi/${file}`),
  ];
  for (const file of named) await lstat(join(root, file));
  const folders = [`node_modules/@koromix/koffi-linux-${arch}`, 'proto', 'systemd'];
  const inside = await Promise.all(folders.map((folder) => filesIn(root, folder)));
  // Links to the two programs, and Node if it is included. A checkout has no bin folder.
  const links = await filesIn(root, 'bin').catch(() => []);
  return [...named, ...inside.flat(), ...links].toSorted();
}

/** Lists all files and links in a folder recursively, relative to `root`. */
export async function filesIn(root: string, folder: string): Promise<readonly string[]> {
  const entries = await readdir(join(root, folder), { withFileTypes: true });
  const nested = entries.map((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesIn(root, path) : Promise.resolve([path]);
  });
  return (await Promise.all(nested)).flat();
}
