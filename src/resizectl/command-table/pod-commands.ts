import type { ArgumentText, CommandText, OptionText } from './texts.ts';

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

/** Commands about the pods of this node. */
export const podCommands: readonly CommandText[] = [
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
