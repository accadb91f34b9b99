import type { OptionText } from './texts.ts';

/** The program itself, and what all of its commands share. */

export const programText = {
  name: 'resizectl',
  summary: 'show and resize the running pods of this node',
  description: [
    'resizectl is a client of the resize API of cri-resize-shim on this node. It shows the limits of pods as the kernel reports them, and resizes their containers, the pod itself and its memory-backed volumes, all or nothing.',
    'POD is a name, NAMESPACE/NAME, a uid or sandbox id, or a prefix of one.',
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
