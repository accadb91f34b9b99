import { defaultOf } from '../core/index.ts';
import type { ArgumentText, CommandText, OptionText } from './command-texts.ts';

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

const listOptions: readonly OptionText[] = [
  { flags: '-w, --watch', description: 'Then print a pod again each time a resize of it ends, like resizectl watch.' },
  { flags: '--no-headers', description: 'Print tables without headings.' },
];

/** Commands about the pods of this node. */
const podCommands: readonly CommandText[] = [
  {
    name: 'get pods',
    aliases: ['po'],
    arguments: [{ form: '[POD...]', description: 'only these pods', completes: 'pods' }],
    options: listOptions,
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
    arguments: [{ form: '[POD...]', description: 'these pods; without any, like get pods', completes: 'pods' }],
    options: listOptions,
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
    name: 'top',
    arguments: [{ form: '[POD...]', description: 'only these pods', completes: 'pods' }],
    options: [
      { flags: '--containers', description: 'Also print each container, below its pod.' },
      {
        flags: '--sort-by <KEY>',
        description: 'Order of the pods (default pressure).',
        choices: ['pressure', 'cpu', 'memory', 'name'],
      },
      { flags: '-w, --watch', description: 'Repeat with new figures until interrupted.' },
      { flags: '--interval <DURATION>', description: 'Time between two prints of --watch (default 2s).' },
    ],
    summary: 'list the pods of this node that are closest to their limits',
    description: [
      'Pods are sorted by pressure: the largest share of a memory limit that cannot be reclaimed, of a volume that is filled, or of the last 10 s in which a task waited for CPU or memory. Page cache does not count. Where the kernel has no pressure stall information, the last two are missing.',
      'CPU is what was used during one second, or since the last print. With --watch on a terminal, only the pods that fit are printed; with -o json, one object per line.',
    ],
    examples: [
      ['resizectl top', ''],
      ['resizectl top --containers -n default', 'the pods of a namespace, with their containers'],
      ['resizectl top -w', 'until interrupted'],
    ],
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
      {
        flags: '--dry-run',
        description: 'Print the steps without applying them, like plan; with --defer, why the resize would wait.',
      },
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
        description: 'a pod; or the id of a resize, or at least its first 8 characters, as printed by events',
        completes: 'pods',
      },
    ],
    options: [],
    summary: 'cancel a deferred resize, or all of a pod',
    description: [
      'A resize that is in progress is finished or rolled back, and not retried. The name of a pod comes before the beginning of an id.',
    ],
    examples: [
      ['resizectl cancel 1f3c9a2b', ''],
      ['resizectl cancel default/web', 'all deferred resizes of this pod'],
    ],
  },
];

const kubeletUnit: OptionText = {
  flags: '--kubelet-unit <UNIT>',
  description: 'The systemd unit of kubelet (default: the one that runs, such as kubelet.service or k3s.service).',
};
const installOptions: readonly OptionText[] = [
  { flags: '--dry-run', description: 'Print the changes without making them.' },
  kubeletUnit,
  {
    flags: '--timeout <DURATION>',
    description:
      'Maximum time for the shim to become ready, and for kubelet to come back (default 1m; 5m in a unit that starts more than kubelet, as those of k3s and RKE2).',
  },
];
const configOption: OptionText = {
  flags: '--config <FILE>',
  description: 'Replace the configuration of the shim with this file (by default the existing one is kept).',
};
const kubeconfigOption: OptionText = {
  flags: '--kubeconfig <FILE>',
  description:
    'Copy this kubeconfig to /var/lib/cri-resize-shim-installer/kubeconfig, readable only by root. The DaemonSet uses it.',
};
const rollback =
  'If a step fails or the command is interrupted, all changes are rolled back. Exit codes: 0 all steps are done or were done before, 2 refused, nothing was changed, 3 all changes were rolled back, 6 a change could not be rolled back, 7 nothing was changed, or all was rolled back, because another process installs or removes the shim, or has changed a file of kubelet.';

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

/** Commands about this node and the shim on it. */
const nodeCommands: readonly CommandText[] = [
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
      'Exit codes: 0 all checks pass, 1 at least one warning, 2 at least one check failed: the shim would not work, or kubelet has no runtime.',
    ],
    examples: [
      ['resizectl doctor', 'before and after the installation of the shim'],
      ['resizectl doctor -o json', 'for programs'],
    ],
  },
  {
    name: 'install',
    arguments: [],
    options: [...installOptions, configOption, kubeconfigOption],
    summary: 'install the shim on this node, and point kubelet at it',
    description: [
      'Runs the checks of doctor first. If one fails, nothing is changed. (A kubelet that uses the shim and ends again after each start is not such a failure.) Then copies the program to /usr/local/lib/cri-resize-shim, or /opt/lib/cri-resize-shim if /usr is read-only, and the units to /etc/systemd/system, and writes a configuration to /etc/cri-resize-shim unless there is one. Starts the shim. Once the shim is ready, sets the endpoint of kubelet in its configuration file, a drop-in or its flag, and in the file instance-config.yaml of kubeadm. The original of each changed file is kept next to it. Then restarts kubelet, and waits until kubelet calls through the shim. Pods keep running.',
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
    arguments: [
      { form: '[PID]', description: 'the process of the bypass (default: that of cri-resize-shim-bypass.service)' },
      { form: '[SOCKET]', description: 'the socket that it serves (default: that of the shim)' },
    ],
    options: [],
    summary: 'move the clients of the bypass to the shim that runs',
    description: [
      "Each time when the shim is ready again, cri-resize-shim-takeover.service runs this, or the image's entry point, which names the process.",
    ],
    examples: [],
  },
];

/** Commands about resizectl itself. */
const programCommands: readonly CommandText[] = [
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

/** The commands of resizectl. --help, the manual page and the shell completions are generated from this table. */
export const commandTexts: readonly CommandText[] = [...podCommands, ...nodeCommands, ...programCommands];
