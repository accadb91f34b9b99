import { defaultOf } from '../config/index.ts';

/**
 * What resizectl can do, once: --help, the manual page and the shells' completions are made from this.
 */

export interface OptionText {
  /** `-o, --output <FORMAT>`, as commander reads it. */
  readonly flags: string;
  readonly description: string;
  readonly choices?: readonly string[];
}

export interface ArgumentText {
  /** `<POD>`, `[POD]` or `<WISH...>`, as commander reads it. */
  readonly form: string;
  readonly description: string;
  /** What a shell may complete it with. */
  readonly completes?: 'pods' | readonly string[];
}

export interface CommandText {
  /** `get pods` */
  readonly name: CommandName;
  readonly arguments: readonly ArgumentText[];
  readonly options: readonly OptionText[];
  readonly summary: string;
  /** More, in paragraphs. */
  readonly description: readonly string[];
  /** Command lines, each with what it does. */
  readonly examples: readonly (readonly [line: string, what: string])[];
}

export const commandNames = [
  'get pods',
  'get pod',
  'describe pod',
  'plan',
  'resize',
  'watch',
  'events',
  'cancel',
  'doctor',
  'install',
  'uninstall',
  'version',
  'completion',
  'man',
] as const;
export type CommandName = (typeof commandNames)[number];

export const programText = {
  name: 'resizectl',
  summary: 'resize running pods of this node, and see how they are',
  description: [
    'resizectl talks to the resize API of cri-resize-shim on this node: it shows pods as the kernel has them, and resizes their containers, the pod itself and its memory-backed volumes, all or nothing.',
    'A POD is named by its name, namespace/name, uid, or the beginning of its sandbox id.',
  ],
} as const;

export const defaultEndpoint = 'unix:///run/cri-resize-shim/resize.sock';
export const defaultKubeletUnit = 'kubelet.service';
export const outputs = ['table', 'json', 'yaml', 'name'] as const;
export type Output = (typeof outputs)[number];

export const globalOptions: readonly OptionText[] = [
  { flags: '--endpoint <ADDRESS>', description: `Socket of the resize API (default ${defaultEndpoint})` },
  {
    flags: '-o, --output <FORMAT>',
    description: 'table for people, json or yaml for programs, name: namespace/name of pods alone',
    choices: outputs,
  },
];

const pod: ArgumentText = { form: '<POD>', description: 'the pod', completes: 'pods' };
const podOrAll: ArgumentText = { form: '[POD]', description: 'only this pod', completes: 'pods' };
const wishes: ArgumentText = { form: '<WISH...>', description: 'what it is to become' };

const wishText = [
  "A WISH is one of: CONTAINER.cpu=500m, CONTAINER.memory=256Mi (limits), CONTAINER.requests.cpu=250m, CONTAINER.requests.memory=128Mi, the same with pod for CONTAINER (the pod's own limits; without any they follow its containers'), and volume.NAME=SIZE, where SIZE is an amount (256Mi), a share of the pod's memory limit (50%) or of a container's (50%/web), follow or fixed. max takes a limit away. Of a container that is itself named pod or volume: container/pod.cpu.",
  'What is not named stays as it is. Either all of it is carried out, or nothing.',
] as const;

const timeout: OptionText = {
  flags: '--timeout <DURATION>',
  description: 'what is not done by then is undone: 500ms, 30s (which it is without), 10m at most',
};

const kubeletUnit: OptionText = {
  flags: '--kubelet-unit <UNIT>',
  description: `systemd's unit of kubelet (default ${defaultKubeletUnit})`,
};
const installing: readonly OptionText[] = [
  { flags: '--dry-run', description: 'say what would be done, and do nothing' },
  kubeletUnit,
  {
    flags: '--timeout <DURATION>',
    description: 'how long the shim may take to be ready, and kubelet to come back: 30s, 2m (1m without)',
  },
];
const givenConfig: OptionText = {
  flags: '--config <FILE>',
  description: "the shim's configuration is to be as in this file (what is there stays, without)",
};
const undone =
  'At the first step that fails, or when it is interrupted, everything is put back as it was. Exits with 0 when all is done or was so already, 2 when nothing was touched, 3 when all was undone, 6 when something could not be undone.';

export const commandTexts: readonly CommandText[] = [
  {
    ...{ name: 'get pods', arguments: [], options: [] },
    summary: 'list the pods of this node, with limits and use',
    description: [],
    examples: [
      ['resizectl get pods', 'a line for each pod'],
      ['resizectl get pods -o json | jq .pods[].identity', 'the same for programs'],
    ],
  },
  {
    ...{ name: 'get pod', arguments: [pod], options: [] },
    summary: 'show one pod and its containers',
    description: [],
    examples: [['resizectl get pod default/web', 'limits and use of the pod, its containers and volumes']],
  },
  {
    ...{ name: 'describe pod', arguments: [pod], options: [] },
    summary: 'tell everything about one pod',
    description: ['Also what was asked for last, what was admitted and written, and how the last resize ended.'],
    examples: [['resizectl describe pod web', '']],
  },
  {
    ...{ name: 'plan', arguments: [pod, wishes], options: [timeout] },
    summary: 'say what a resize would do, step by step, and change nothing',
    description: [...wishText],
    examples: [['resizectl plan web app.memory=1Gi volume.cache=50%', 'the steps in their order']],
  },
  {
    name: 'resize',
    arguments: [pod, wishes],
    options: [
      { flags: '--dry-run', description: 'as plan' },
      { flags: '--defer', description: 'what does not fit yet is tried again until it does' },
      timeout,
    ],
    summary: 'resize a pod',
    description: [
      ...wishText,
      'The steps are shown as they are carried out, at the end what has changed. Interrupted, the resize itself goes on: resizectl events tells how.',
    ],
    examples: [
      ['resizectl resize web app.cpu=500m app.memory=256Mi', "limits of one container; the pod's follow"],
      ['resizectl resize web pod.memory=1Gi volume.cache=50%', "the pod's own limit, and a volume of half of it"],
      ['resizectl resize --defer web app.memory=128Mi', 'as soon as so little is in use'],
    ],
  },
  {
    ...{ name: 'watch', arguments: [podOrAll], options: [] },
    summary: 'list pods, and each again when a resize of it has come to an end',
    description: ['Until it is interrupted.'],
    examples: [['resizectl watch', '']],
  },
  {
    ...{ name: 'events', arguments: [podOrAll], options: [] },
    summary: 'tell each state and each step of resizes as it happens',
    description: [
      'First the state of each resize that has not ended, then what happens, until it is interrupted. With -o json one object a line.',
    ],
    examples: [['resizectl events -o json', 'for programs']],
  },
  {
    ...{
      name: 'cancel',
      arguments: [{ form: '<ID>', description: 'the id of a resize, as resize and events tell it' }],
      options: [],
    },
    summary: 'end a deferred resize',
    description: ['One that is being carried out is finished or undone, and not tried again.'],
    examples: [],
  },
  {
    name: 'doctor',
    arguments: [],
    options: [
      {
        flags: '--listen <ADDRESS>',
        description: `Socket on which the shim serves the CRI (default ${defaultOf('listen')})`,
      },
      {
        flags: '--container-runtime-endpoint <ADDRESS>',
        description: `Socket of containerd (default ${defaultOf('containerRuntimeEndpoint')})`,
      },
      {
        flags: '--state-folder <FOLDER>',
        description: `Where the shim journals (default ${defaultOf('stateFolder')})`,
      },
      kubeletUnit,
    ],
    summary: 'look whether this node has what the shim needs, and how it is set up',
    description: [
      'Changes nothing. A line for each check, with what was found, and what to do where something is missing.',
      'Exits with 0 when all is well, 1 when something is less than it could be, 2 when the shim would not work.',
    ],
    examples: [
      ['resizectl doctor', 'before and after the shim is set up'],
      ['resizectl doctor -o json', 'for programs'],
    ],
  },
  {
    ...{ name: 'install', arguments: [], options: [...installing, givenConfig] },
    summary: 'set this node up for the shim, and kubelet to go through it',
    description: [
      'First what doctor does: where a check has failed, nothing is touched. Then the program goes to /usr/local/lib/cri-resize-shim, the units to /etc/systemd/system, a configuration to /etc/cri-resize-shim where there is none; the shim is started and, once it is ready, kubelet is pointed at it (in its configuration file or by its flag, whichever it has; the file as it was stays beside it) and restarted, and has to call through it. Pods keep running.',
      undone,
    ],
    examples: [
      ['resizectl install --dry-run', 'what it comes to on this node'],
      ['resizectl install', 'also to upgrade: what is so already stays'],
    ],
  },
  {
    ...{ name: 'uninstall', arguments: [], options: installing },
    summary: 'take the shim off this node again, and point kubelet back',
    description: [
      'kubelet gets the endpoint that it had before (without the file from then: containerd’s socket, as the shim has it) and is restarted; then sockets, service, units and program go. Configuration and state folder stay. Pods keep running, with the limits and volume sizes that they have.',
      undone,
    ],
    examples: [['resizectl uninstall --dry-run', 'what it comes to on this node']],
  },
  {
    ...{ name: 'version', arguments: [], options: [] },
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
    ...{ name: 'man', arguments: [], options: [] },
    summary: 'print the manual page',
    description: [],
    examples: [['resizectl man | man -l -', 'read it']],
  },
];

/** Exit codes, for people and scripts. */
export const Exit = {
  done: 0,
  failed: 1,
  usage: 2,
  infeasible: 3,
  deferred: 4,
  canceled: 5,
  undoFailed: 6,
} as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

export const exitTexts: readonly (readonly [code: Exit, meaning: string])[] = [
  [Exit.done, 'done: the kernel has the values; of plan: it could be done'],
  [Exit.failed, 'it is not known how it ended: the resize API cannot be reached, or failed'],
  [Exit.usage, 'the command line makes no sense, or names no pod'],
  [Exit.infeasible, 'refused, does not fit yet (without --defer), or failed and undone: the pod is as it was'],
  [Exit.deferred, 'does not fit yet, and is tried again (--defer)'],
  [Exit.canceled, 'canceled, superseded by a newer resize, or the pod has gone'],
  [Exit.undoFailed, 'failed, and could not be undone either: the pod is between two states until it is mended'],
];
