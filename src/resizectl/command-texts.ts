import { Exit } from '../core/index.ts';

/** The texts of --help, the manual page and the shell completions. */

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
  /** The completions of the argument. */
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

/** The program itself, and what all of its commands share. */

export const programText = {
  name: 'resizectl',
  summary: 'show and resize the running pods of this node',
  description: [
    'resizectl is a client of the resize API of cri-resize-shim on this node. It shows the limits of pods as the kernel reports them, and resizes their containers, the pod itself and its memory-backed volumes, all or nothing.',
    'POD is a name, NAMESPACE/NAME, pod/NAME, a uid or sandbox id, or a prefix of one.',
  ],
} as const;

export const defaultEndpoint = 'unix:///run/cri-resize-shim/resize.sock';
export const outputs = ['table', 'wide', 'json', 'yaml', 'name'] as const;
/** `wide` is a table with more columns. */
export type Output = Exclude<(typeof outputs)[number], 'wide'>;

export const globalOptions: readonly OptionText[] = [
  { flags: '--endpoint <ADDRESS>', description: `Socket of the resize API (default ${defaultEndpoint}).` },
  {
    flags: '-o, --output <FORMAT>',
    description:
      'Output format: a table for people (wide: with more columns), json or yaml for programs, or the names of pods only.',
    choices: outputs,
  },
  { flags: '-n, --namespace <NAMESPACE>', description: 'Only pods of this namespace (default: those of all).' },
  { flags: '-A, --all-namespaces', description: 'Pods of all namespaces, which is the default.' },
];

/** The meaning of each exit code, for --help, the manual page and the docs. */
export const exitTexts: readonly (readonly [code: Exit, meaning: string])[] = [
  [Exit.done, 'done: the kernel has the new values; for plan and --dry-run: the resize is possible'],
  [Exit.failed, 'result unknown: the resize API cannot be reached or failed'],
  [Exit.usage, 'invalid command line, no such pod, or refused: nothing was changed'],
  [
    Exit.infeasible,
    'rejected, does not fit yet (without --defer), or failed and rolled back: the pod, or the node, is unchanged',
  ],
  [Exit.deferred, 'does not fit yet, and is retried (--defer), or would be (--defer --dry-run)'],
  [Exit.canceled, 'canceled, superseded by a newer resize, or the pod is gone'],
  [
    Exit.undoFailed,
    'failed, and the rollback failed too: the pod has a mix of old and new values until it is recovered; for the node, the output says what is left',
  ],
  [
    Exit.busy,
    'nothing was changed, or all was rolled back: another process installs or removes the shim on this node, or has changed a file of kubelet meanwhile',
  ],
];
