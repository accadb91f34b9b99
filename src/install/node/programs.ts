import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { OWN_NODE, programFiles } from './program-files.ts';

/** The forms of the program that can be installed. */
export type Program =
  /** A built checkout or the self-contained folder. `node` starts the installed program; `arch` as process.arch. */
  | { readonly kind: 'folder'; readonly folder: string; readonly node: string; readonly arch: string }
  /** The single executable: Node, both programs and their dependencies. */
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
      return files.map((path) => ({ path, from: join(program.folder, path) }));
    }
    case 'executable':
      return [
        { path: EXECUTABLE, from: program.file },
        // The name selects which of the two programs runs (src/executable.ts).
        { path: RESIZECTL, linkTo: 'cri-resize-shim' },
      ];
  }
}

/** The Node that starts the installed program: the one in its folder if there is one, otherwise the one that runs this process. */
export const nodeProgramOf = (folder: string, to: string): string =>
  existsSync(join(folder, OWN_NODE)) ? join(to, OWN_NODE) : process.execPath;

/** The source of a program. */
export const originOf = (program: Program): string => (program.kind === 'folder' ? program.folder : program.file);

/** The path that corresponds to {@link originOf} once the program is in the folder `to`. */
export const originIn = (program: Program, to: string): string =>
  program.kind === 'folder' ? to : join(to, EXECUTABLE);

/** The command line of the resizectl installed in the folder `to`. */
export const resizectlOf = (program: Program, to: string): readonly string[] =>
  program.kind === 'folder' ? [program.node, `${to}/dist/resizectl.js`] : [`${to}/${RESIZECTL}`];

/** The value of ExecStart= for the program installed in the folder `to`, quoted for systemd. */
export function startOf(program: Program, to: string): string {
  const words = program.kind === 'folder' ? [program.node, `${to}/dist/cri-resize-shim.js`] : [`${to}/${EXECUTABLE}`];
  return words.map(quoted).join(' ');
}

/** Quotes a word for systemd, where % starts a specifier. */
function quoted(word: string): string {
  const escaped = word.replaceAll(/["\\]/g, '\\$&').replaceAll('%', '%%');
  return /[\s"'\\]/.test(word) ? `"${escaped}"` : escaped;
}
