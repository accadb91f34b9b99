import { defaultOf } from '../config/index.ts';

/** The commands of resizectl. --help, the manual page and the shell completions are generated from this table. */

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

export const programText = {
  name: 'resizectl',
  summary: 'show and resize the running pods of this node',
  description: [
    'resizectl is a client of the resize API of cri-resize-shim on this node. It shows the limits of pods as the kernel reports them, and resizes their containers, the pod itself and its memory-backed volumes, all or nothing.',
    'POD is a name, NAMESPACE/NAME, a uid, or a prefix of a sandbox id.',
  ],
} as const;

export const defaultEndpoint = 'unix:///run/cri-resize-shim/resize.sock';
export const defaultKubeletUnit = 'kubelet.service';
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

const pod: ArgumentText = { form: '<POD>', description: 'the pod', completes: 'pods' };
const pods: ArgumentText = { form: '<POD...>', description: 'the pods', completes: 'pods' };
const podOrAll: ArgumentText = { form: '[POD]', description: 'only this pod', completes: 'pods' };
const changes: ArgumentText = { form: '<CHANGE...>', description: 'new limits, requests or volume sizes' };

const changeText = [
  "CHANGE sets one value. Limits: CONTAINER.cpu=500m, CONTAINER.memory=256Mi. Requests: CONTAINER.requests.cpu=250m, CONTAINER.requests.memory=128Mi. The pod's own values: pod.cpu, pod.memory, pod.requests.cpu, pod.requests.memory; by default its limits follow those of its containers. Volumes: volume.NAME=SIZE, where SIZE is a quantity (256Mi), a percentage of the pod's memory limit (50%) or of a container's (50%/web), follow or fixed. The value max removes a limit. If a container is named pod or volume, write container/pod.cpu.",
  'All other values stay unchanged. Either all changes are applied, or none.',
] as const;

const timeout: OptionText = {
  flags: '--timeout <DURATION>',
  description: 'Roll back anything unfinished after this time (default 30s, maximum 10m).',
};

const kubeletUnit: OptionText = {
  flags: '--kubelet-unit <UNIT>',
  description: `The systemd unit of kubelet (default ${defaultKubeletUnit}).`,
};
const installOptions: readonly OptionText[] = [
  { flags: '--dry-run', description: 'Print the changes without making them.' },
  kubeletUnit,
  {
    flags: '--timeout <DURATION>',
    description: 'Maximum time for the shim to become ready, and for kubelet to come back (default 1m).',
  },
];
const configOption: OptionText = {
  flags: '--config <FILE>',
  description: 'Replace the configuration of the shim with this file (by default the existing one is kept).',
};
const rollback =
  'If a step fails or the command is interrupted, all changes are rolled back. Exit codes: 0 all steps are done or were done before, 2 nothing was changed, 3 all changes were rolled back, 6 a change could not be rolled back.';

const switchOptions: readonly OptionText[] = [
  { flags: '--dry-run', description: 'Print the changes without making them.' },
  {
    flags: '--timeout <DURATION>',
    description: 'Maximum time for the shim to come back (default 1m).',
  },
];
const switchText =
  'Nothing but this value changes in the file: comments, order and symbolic links stay. systemd keeps the sockets during the restart, so kubelet stays connected; running calls are answered. If the shim does not come back as asked, file and shim are restored (exit code 3).';
const configFile: ArgumentText = {
  form: '[FILE]',
  description:
    'the file (default: the flags of the service in /etc/default/cri-resize-shim, and the file that they name)',
};

export const commandTexts: readonly CommandText[] = [
  {
    name: 'get pods',
    aliases: ['po'],
    arguments: [{ form: '[POD...]', description: 'only these pods', completes: 'pods' }],
    options: [],
    summary: 'list the pods of this node with their limits and usage',
    description: [],
    examples: [
      ['resizectl get pods', 'one line per pod'],
      ['resizectl get po -n default web db -o wide', 'these pods, with who asked for their last resize'],
      ['resizectl get pods -o json | jq .pods[].identity', 'JSON for programs'],
    ],
  },
  {
    name: 'get pod',
    arguments: [pods],
    options: [],
    summary: 'show pods and their containers',
    description: [],
    examples: [['resizectl get pod default/web', 'limits and usage of the pod, its containers and its volumes']],
  },
  {
    name: 'describe pod',
    aliases: ['pods', 'po'],
    arguments: [pods],
    options: [],
    summary: 'show all details of pods',
    description: [
      'Includes the last requested, admitted and applied values, and the last resizes: who asked, what changed, and the outcome.',
    ],
    examples: [['resizectl describe pod web', '']],
  },
  {
    name: 'plan',
    arguments: [pod, changes],
    options: [timeout],
    summary: 'print the steps of a resize without applying them',
    description: [...changeText],
    examples: [['resizectl plan web app.memory=1Gi volume.cache=50%', 'the steps in order']],
  },
  {
    name: 'resize',
    arguments: [pod, changes],
    options: [
      { flags: '--dry-run', description: 'Print the steps without applying them, like plan.' },
      { flags: '--defer', description: 'Retry a resize that does not fit yet until it fits.' },
      timeout,
    ],
    summary: 'resize a pod',
    description: [
      ...changeText,
      'Prints each step as it is applied, and the changed values at the end. If resizectl is interrupted, the resize continues: resizectl events shows its progress.',
    ],
    examples: [
      ['resizectl resize web app.cpu=500m app.memory=256Mi', "limits of one container; the pod's limits follow"],
      ['resizectl resize web pod.memory=1Gi volume.cache=50%', "the pod's own limit, and a volume of half that size"],
      ['resizectl resize --defer web app.memory=128Mi', 'as soon as memory usage is low enough'],
    ],
  },
  {
    name: 'watch',
    arguments: [podOrAll],
    options: [],
    summary: 'list pods, and print a pod again each time a resize of it ends',
    description: ['Runs until interrupted.'],
    examples: [['resizectl watch', '']],
  },
  {
    name: 'events',
    arguments: [podOrAll],
    options: [],
    summary: 'print the states and steps of resizes as they happen',
    description: [
      'First prints the last resizes, from any requester: kubelet and other clients of the CRI, the resize API, or annotations. Then prints new events, until interrupted. With -o json, prints one object per line.',
    ],
    examples: [['resizectl events -o json', 'for programs']],
  },
  {
    name: 'cancel',
    arguments: [
      {
        form: '<ID-OR-POD>',
        description: 'the id of a resize, or its beginning as printed by events; or a pod',
        completes: 'pods',
      },
    ],
    options: [],
    summary: 'cancel a deferred resize, or all of a pod',
    description: ['A resize that is in progress is finished or rolled back, and not retried.'],
    examples: [
      ['resizectl cancel 1f3c9a2b', ''],
      ['resizectl cancel default/web', 'all deferred resizes of this pod'],
    ],
  },
  {
    name: 'doctor',
    arguments: [],
    options: [
      {
        flags: '--listen <ADDRESS>',
        description: `Socket on which the shim serves the CRI (default ${defaultOf('listen')}).`,
      },
      {
        flags: '--container-runtime-endpoint <ADDRESS>',
        description: `Socket of containerd (default ${defaultOf('containerRuntimeEndpoint')}).`,
      },
      {
        flags: '--state-folder <FOLDER>',
        description: `Folder of the journal of the shim (default ${defaultOf('stateFolder')}).`,
      },
      kubeletUnit,
    ],
    summary: 'check whether this node meets the requirements of the shim, and how it is set up',
    description: [
      'Changes nothing. Prints one line per check with what was found, and what to do if a check does not pass.',
      'Exit codes: 0 all checks pass, 1 at least one warning, 2 at least one check failed and the shim would not work.',
    ],
    examples: [
      ['resizectl doctor', 'before and after the installation of the shim'],
      ['resizectl doctor -o json', 'for programs'],
    ],
  },
  {
    name: 'install',
    arguments: [],
    options: [...installOptions, configOption],
    summary: 'install the shim on this node, and point kubelet at it',
    description: [
      'Runs the checks of doctor first; if one fails, nothing is changed. Then copies the program to /usr/local/lib/cri-resize-shim and the units to /etc/systemd/system, and writes a configuration to /etc/cri-resize-shim unless there is one. Starts the shim and, once it is ready, sets the endpoint of kubelet in its configuration file or its flag (the original file is kept next to it), restarts kubelet, and waits until it calls through the shim. Pods keep running.',
      rollback,
    ],
    examples: [
      ['resizectl install --dry-run', 'the changes on this node'],
      ['resizectl install', 'also upgrades; what is up to date stays unchanged'],
    ],
  },
  {
    name: 'uninstall',
    arguments: [],
    options: installOptions,
    summary: 'remove the shim from this node, and point kubelet back at the runtime',
    description: [
      'Restores the previous endpoint of kubelet (without the saved file: the socket of containerd from the configuration of the shim) and restarts kubelet, then removes the sockets, the service, the units and the program. The configuration and the state folder are kept. Pods keep running with their current limits and volume sizes.',
      rollback,
    ],
    examples: [['resizectl uninstall --dry-run', 'the changes on this node']],
  },
  {
    name: 'on',
    arguments: [],
    options: switchOptions,
    summary: 'have the shim act on resizes',
    description: ['Sets intercept: true in the configuration file of the service, and restarts the shim.', switchText],
    examples: [['resizectl on', '']],
  },
  {
    name: 'off',
    arguments: [],
    options: switchOptions,
    summary: 'have the shim forward every call unchanged',
    description: [
      'Sets intercept: false in the configuration file of the service, and restarts the shim. Metrics and health checks stay. The state holds until resizectl on, also after a reboot.',
      switchText,
    ],
    examples: [['resizectl off', '']],
  },
  {
    name: 'config check',
    arguments: [configFile],
    options: [],
    summary: 'check a configuration file of the shim',
    description: [
      'Prints one line for each problem, with file, line, key and value, and what is allowed. Needs no running shim. Exit codes: 0 the file is valid, 1 it is not.',
    ],
    examples: [['resizectl config check config.yaml', 'before the file is installed']],
  },
  {
    name: 'config show',
    arguments: [configFile],
    options: [],
    summary: 'print every setting of the shim with its value, and where it comes from',
    description: [
      'Reads the flags of the service and the file that they name, as they are on the disk. A running shim has the values that it has read at its start.',
    ],
    examples: [['resizectl config show -o json', 'for programs']],
  },
  {
    name: 'bypass on',
    arguments: [],
    options: [],
    summary: 'let clients of the shim reach containerd without it',
    description: [
      'For an incident in which the shim is suspected. Starts cri-resize-shim-bypass.service, then stops the shim. Running calls are answered. Pods keep running; resizes reach containerd unchanged. The bypass stays on until resizectl bypass off, also after a reboot.',
      'Without resizectl: systemctl add-wants cri-resize-shim.socket cri-resize-shim-bypass.service; systemctl start cri-resize-shim-bypass.service; systemctl stop cri-resize-shim.service',
    ],
    examples: [['resizectl bypass on', '']],
  },
  {
    name: 'bypass off',
    arguments: [],
    options: [],
    summary: 'start the shim, and move the clients of the bypass to it',
    description: [
      'Returns when all clients use the shim. Running calls are answered first. If the shim does not start, the bypass stays on (exit code 1).',
      'Without resizectl: systemctl disable cri-resize-shim-bypass.service; systemctl start cri-resize-shim.service',
    ],
    examples: [['resizectl bypass off', '']],
  },
  {
    name: 'bypass drain',
    arguments: [],
    options: [],
    summary: 'move the clients of the bypass to the shim that runs',
    description: ['cri-resize-shim-takeover.service runs this each time when the shim is ready again.'],
    examples: [],
  },
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
  [Exit.done, 'done: the kernel has the new values; for plan: the resize is possible'],
  [Exit.failed, 'result unknown: the resize API cannot be reached or failed'],
  [Exit.usage, 'invalid command line, or no such pod'],
  [Exit.infeasible, 'rejected, does not fit yet (without --defer), or failed and rolled back: the pod is unchanged'],
  [Exit.deferred, 'does not fit yet, and is retried (--defer)'],
  [Exit.canceled, 'canceled, superseded by a newer resize, or the pod is gone'],
  [
    Exit.undoFailed,
    'failed, and the rollback failed too: the pod has a mix of old and new values until it is recovered',
  ],
];
