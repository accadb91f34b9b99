import { linesBack } from './way-back.ts';
import { type Change, type Program, type Site, readSaved, removing, resizectlOf, writing } from '../host/index.ts';

/** Marks the file as ours. A file without this line belongs to somebody else and is kept. */
const OURS = '# Part of cri-resize-shim: "resizectl uninstall" takes it away.';

/** The changes that put resizectl into PATH, or the reason why there are none. */
export interface CommandPlan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
}

/** Plans a shell script in PATH that runs the installed resizectl. A symbolic link would need Node in PATH too. */
export async function planCommand({ program, to, node, commandFile }: Site): Promise<CommandPlan> {
  const text = commandText(program, to, linesBack(node));
  const there = (await readSaved(commandFile))?.content.toString('utf8');
  if (there === text) return { changes: [], already: [`resizectl is at ${commandFile}`] };
  if (there !== undefined && !isOurs(there))
    return { changes: [], already: [`${commandFile} does not belong to cri-resize-shim and is kept`] };
  return { changes: [writing(commandFile, text, { mode: 0o755 })], already: [] };
}

/** Removes the command if it is ours. */
export async function removingCommand({ commandFile }: Site): Promise<readonly Change[]> {
  const there = await readSaved(commandFile);
  return there !== undefined && isOurs(there.content.toString('utf8')) ? [removing(commandFile)] : [];
}

const isOurs = (text: string): boolean => text.split('\n', 2)[1] === OURS;

/**
 * The script, for sh(1).
 * @param back lines of shell that do what is most urgent, printed if the program cannot be executed
 */
export function commandText(program: Program, to: string, back: readonly string[]): string {
  const words = resizectlOf(program, to).map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
  return [
    '#!/bin/sh',
    OURS,
    `if [ ! -x ${words[0]} ]; then`,
    "  cat >&2 <<'END'",
    'resizectl cannot run: its program is missing. resizectl install from a release repairs it. These lines lead to containerd:',
    '  systemctl start cri-resize-shim-bypass.service; systemctl stop cri-resize-shim.service',
    'These lines point kubelet at containerd, and stop the shim:',
    ...back.map((line) => `  ${line}`),
    'END',
    '  exit 127',
    'fi',
    `exec ${words.join(' ')} "$@"`,
    '',
  ].join('\n');
}
