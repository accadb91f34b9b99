import { nodeCommands } from './node-commands.ts';
import { podCommands } from './pod-commands.ts';
import { programCommands } from './program-commands.ts';
import type { CommandText } from './texts.ts';

/** The commands of resizectl. --help, the manual page and the shell completions are generated from this table. */
export const commandTexts: readonly CommandText[] = [...podCommands, ...nodeCommands, ...programCommands];

export { Exit, exitTexts } from './exit-codes.ts';
export { defaultKubeletUnit } from './node-commands.ts';
export { defaultEndpoint, globalOptions, outputs, programText } from './program-text.ts';
export type { Output } from './program-text.ts';
export type { CommandName, CommandText, OptionText } from './texts.ts';
