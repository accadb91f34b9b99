import type { Change } from './change.ts';
import { keep, removing, writing } from './files.ts';
import { type Program, resizectlOf } from './programs.ts';
import type { Site } from './site.ts';

/** By this line it is known whose the command is: one that somebody else has put there stays. */
const OURS = '# Part of cri-resize-shim: "resizectl uninstall" takes it away.';

/** What there is to do for an operator to find resizectl in PATH; or why that is left. */
export interface CommandPlan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
}

/** resizectl in PATH, run as the program in its place is: a link would need a Node in PATH too. */
export async function planCommand({ program, to, commandFile }: Site): Promise<CommandPlan> {
  const text = commandText(program, to);
  const there = (await keep(commandFile))?.content.toString('utf8');
  if (there === text) return { changes: [], already: [`resizectl is at ${commandFile}`] };
  if (there !== undefined && !isOurs(there))
    return { changes: [], already: [`${commandFile} is not of cri-resize-shim, and stays`] };
  return { changes: [writing(commandFile, text, { mode: 0o755 })], already: [] };
}

/** Takes the command away, if it is ours. */
export async function removingCommand({ commandFile }: Site): Promise<readonly Change[]> {
  const there = await keep(commandFile);
  return there !== undefined && isOurs(there.content.toString('utf8')) ? [removing(commandFile)] : [];
}

const isOurs = (text: string): boolean => text.split('\n', 2)[1] === OURS;

/** For sh(1). */
export function commandText(program: Program, to: string): string {
  const words = resizectlOf(program, to).map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
  return `#!/bin/sh\n${OURS}\nexec ${words.join(' ')} "$@"\n`;
}
