import type { CommandText } from './texts.ts';

/** Commands about resizectl itself. */
export const programCommands: readonly CommandText[] = [
  {
    name: 'version',
    arguments: [],
    options: [],
    summary: 'print the version, and whether the resize API answers',
    description: [],
    examples: [],
  },
  {
    name: 'completion',
    arguments: [{ form: '<SHELL>', description: 'bash, zsh or fish', completes: ['bash', 'zsh', 'fish'] }],
    options: [],
    summary: 'print a completion script for a shell',
    description: [],
    examples: [
      ['resizectl completion bash > /etc/bash_completion.d/resizectl', ''],
      ['resizectl completion zsh > /usr/local/share/zsh/site-functions/_resizectl', ''],
      ['resizectl completion fish > /etc/fish/completions/resizectl.fish', ''],
    ],
  },
  {
    name: 'man',
    arguments: [],
    options: [],
    summary: 'print the manual page',
    description: [],
    examples: [['resizectl man | man -l -', 'read it']],
  },
];
