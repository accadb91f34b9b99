/** What --help, the manual page and the shell completions say about a command. */

export interface OptionText {
  /** `-o, --output <FORMAT>`, in commander's syntax. */
  readonly flags: string;
  readonly description: string;
  readonly choices?: readonly string[];
}

export interface ArgumentText {
  /** `<POD>`, `[POD]` or `<CHANGE...>`, in commander's syntax. */
  readonly form: string;
  readonly description: string;
  /** What a shell completes the argument with. */
  readonly completes?: 'pods' | readonly string[];
}

export interface CommandText {
  /** `get pods` */
  readonly name: CommandName;
  /** Other words for the last word of the name. */
  readonly aliases?: readonly string[];
  readonly arguments: readonly ArgumentText[];
  readonly options: readonly OptionText[];
  readonly summary: string;
  /** Further paragraphs. */
  readonly description: readonly string[];
  /** Command lines, each with what it does. */
  readonly examples: readonly (readonly [line: string, what: string])[];
}

export const commandNames = [
  'get pods',
  'get pod',
  'describe pod',
  'top',
  'plan',
  'resize',
  'watch',
  'events',
  'cancel',
  'doctor',
  'install',
  'uninstall',
  'on',
  'off',
  'config check',
  'config show',
  'bypass on',
  'bypass off',
  'bypass drain',
  'version',
  'completion',
  'man',
] as const;
export type CommandName = (typeof commandNames)[number];
