import { existsSync } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** The forms of the program that can be installed. */
export type Program =
  /**
   * A built checkout or the self-contained folder. `node` starts the installed program. `nodeFrom` is a Node outside
   * the folder to be copied there. `arch` as process.arch.
   */
  | {
      readonly kind: 'folder';
      readonly folder: string;
      readonly node: string;
      readonly nodeFrom?: string;
      readonly arch: string;
    }
  /** The single executable: Node with both programs in it, and all that they need. */
  | { readonly kind: 'executable'; readonly file: string };

/** A file of an installed program with its source, or a symbolic link with its target. */
export type ProgramFile = { readonly path: string } & ({ readonly from: string } | { readonly linkTo: string });

/** Path of the single executable in the program folder. */
export const EXECUTABLE = 'bin/cri-resize-shim';

const RESIZECTL = 'bin/resizectl';

/** Lists the files of a program as installed, relative to the program folder. Rejects if a file is missing. */
export async function filesOf(program: Program): Promise<readonly ProgramFile[]> {
  switch (program.kind) {
    case 'folder': {
      const files = await programFiles(program.folder, program.arch);
      const copied = files.map((path) => ({ path, from: join(program.folder, path) }));
      return program.nodeFrom === undefined ? copied : [...copied, { path: OWN_NODE, from: program.nodeFrom }];
    }
    case 'executable':
      return [
        { path: EXECUTABLE, from: program.file },
        // The name selects which of the two programs runs (src/executable.ts).
        { path: RESIZECTL, linkTo: 'cri-resize-shim' },
      ];
  }
}

/**
 * Returns the Node for a program installed in the folder `to`: the folder's own Node if it has one, otherwise a copy of
 * the running Node, which may be removed later or be in a folder that others cannot read. Returns the running Node
 * itself, without a copy, if its libraries are elsewhere or if the program is already in place.
 */
export function nodeProgramOf(
  folder: string,
  to: string,
  running = process.execPath,
  isShared = hasSharedLibraries(process.config.variables),
): { readonly node: string; readonly nodeFrom?: string } {
  const own = join(to, OWN_NODE);
  if (existsSync(join(folder, OWN_NODE))) return { node: own };
  return isShared || folder === to ? { node: running } : { node: own, nodeFrom: running };
}

/** Whether a Node with these build settings loads shared libraries, as those of distributions do. */
export const hasSharedLibraries = (variables: object): boolean =>
  Object.entries(variables).some(
    ([name, value]) =>
      (name.startsWith('node_shared') && value === true) || (name === 'icu_gyp_path' && /system/.test(String(value))),
  );

/** The source of a program. */
export const originOf = (program: Program): string => (program.kind === 'folder' ? program.folder : program.file);

/** The path that corresponds to {@link originOf} once the program is in the folder `to`. */
export const originIn = (program: Program, to: string): string =>
  program.kind === 'folder' ? to : join(to, EXECUTABLE);

/** The command line of the resizectl installed in the folder `to`. */
export const resizectlOf = (program: Program, to: string): readonly string[] =>
  program.kind === 'folder' ? [program.node, `${to}/dist/resizectl.js`] : [`${to}/${RESIZECTL}`];

/** The value of ExecStart= for the program installed in the folder `to`, quoted for systemd. */
export const startOf = (program: Program, to: string): string =>
  started(program.kind === 'folder' ? [program.node, `${to}/dist/cri-resize-shim.js`] : [`${to}/${EXECUTABLE}`]);

/** The value of ExecStart= for the resizectl installed in the folder `to`, quoted for systemd. */
export const resizectlStartOf = (program: Program, to: string): string => started(resizectlOf(program, to));

/**
 * With SELinux, env makes the program unconfined, regardless of the type of its file: systemd itself may execute it,
 * but then it runs as init_t, which may not connect to containerd.
 */
function started(command: readonly string[]): string {
  // env interprets a word with = as a variable.
  const words = command[0]?.includes('=') === true ? command : ['/usr/bin/env', ...command];
  return words.map(unitWord).join(' ');
}

/** Quotes a word for systemd, where % starts a specifier. */
export function unitWord(word: string): string {
  const escaped = word.replaceAll(/["\\]/g, '\\$&').replaceAll('%', '%%');
  return /[\s"'\\]/.test(word) ? `"${escaped}"` : escaped;
}

/** The files of koffi that the program needs. koffi is not bundled; its sources and build files are left out. */
const KOFFI = ['package.json', 'LICENSE.txt', 'index.js', 'src/koffi/index.js', 'src/koffi/src/static.js'];

/** Path of Node in program folders that include it. The image's installer creates them for hosts without Node. */
export const OWN_NODE = 'bin/node';

/**
 * Lists the files and symbolic links of the program, relative to `root`: a built checkout or the folder of `npm run
 * package`. Includes Node only if the folder has it. Leaves out source maps, four fifths of the size. Rejects if a file
 * is missing.
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
