import { type Container, container, type Volume } from '../pod.ts';
import { type Row, running, type SizeChange, type Step, type WantedDifference } from '../row.ts';

/**
 * KEP-6030: resizes of memory-backed volumes, alone and together with limits. On one side, kubelet 1.37 with its
 * feature gate applies them. On the other, the shim applies the same resizes by ResizePod, with kubelets that do not
 * resize volumes.
 */

/** A container that keeps a file of the first volume open. */
const app = (memory: string, volumes: readonly string[], name = 'app'): Container =>
  container(
    name,
    { limits: { cpu: '200m', memory }, requests: { cpu: '20m', memory: '32Mi' } },
    {
      command: ['sh', '-c', `exec 3<>/${volumes[0]}/${name}; echo kept >&3; exec sleep 1000000`],
      volumeMounts: volumes.map((volume) => ({ name: volume, mountPath: `/${volume}` })),
    },
  );
/** A volume whose size changes. */
const sized = (name: string, size: string): Volume => ({ name, emptyDir: { medium: 'Memory' }, size });

const observe = (label: string): Step => ({ kind: 'observe sizes', label });
const done = (label: string, change: SizeChange): readonly Step[] => [
  { kind: 'sizes', change, until: 'done' },
  observe(label),
];
const refused = (label: string, change: SizeChange): readonly Step[] => [
  { kind: 'sizes', change, until: 'fault' },
  observe(label),
];
const store = (volume: string, mebibytes: number): Step => ({ kind: 'store', volume, mebibytes });

interface Case {
  readonly title: string;
  /** The memory limit of the container. */
  readonly memory: string;
  readonly volumes: readonly Volume[];
  readonly containers?: readonly string[];
  readonly steps: readonly Step[];
  /** Fields of both sides. */
  readonly expected: Readonly<Record<string, string>>;
  readonly difference?: string;
  /** Whether it also exists if kubelet resizes volumes. */
  readonly isAlways?: true;
  readonly ignored?: Row['ignored'];
  /** By field: the values with kubelet and with the shim. */
  readonly differs?: Readonly<
    Record<string, readonly [kubelet: string | undefined, shim: string | readonly string[] | undefined]>
  >;
}

const rowOf = ({
  title,
  memory,
  volumes,
  containers = ['app'],
  steps,
  expected,
  difference,
  isAlways,
  ignored = {},
  differs = {},
}: Case): Row => {
  const names = volumes.map(({ name }) => name);
  const wanted = Object.entries(differs).map(
    ([field, [direct, shim]]): WantedDifference => ({
      ...{ field, direct, shim },
      reason: difference ?? '',
      ...(isAlways && { isAlways }),
    }),
  );
  return {
    title,
    pod: { containers: containers.map((name) => app(memory, names, name)), volumes },
    steps: [running(...containers), { kind: 'sized', change: sizesOf(volumes) }, ...steps],
    expected,
    wanted,
    ignored,
  };
};

/** The shim applies an annotation shortly after the start of the pod. */
const sizesOf = (volumes: readonly Volume[]): SizeChange => ({
  volumes: Object.fromEntries(volumes.flatMap(({ name, size }) => (size === undefined ? [] : [[name, size]]))),
});

const whole = 'the shim applies a resize as a whole or not at all';
const deferred = 'kubelet tries first and reports an error; the shim checks first and defers the resize';
const waits = {
  'refused: events': ['ResizeError, ResizeStarted', 'ResizeDeferred'],
  'refused: conditions': ['PodResizeInProgress Error', ''],
} as const;
const once = 'the shim updates a container once, for memory and CPU together';

const cases: readonly Case[] = [
  {
    title: 'KEP-6030: a volume grows',
    memory: '256Mi',
    volumes: [sized('cache', '64Mi')],
    steps: [
      store('cache', 100),
      observe('before'),
      ...done('grown', { volumes: { cache: '128Mi' } }),
      store('cache', 100),
      observe('after'),
    ],
    expected: {
      'before: stored': '64Mi, no space left',
      'grown: order': 'cache 64Mi -> 128Mi',
      'grown: app sees cache': '128Mi',
      'after: stored': '100Mi',
    },
  },
  {
    title: 'KEP-6030: a volume shrinks',
    memory: '256Mi',
    volumes: [sized('cache', '128Mi')],
    steps: [
      store('cache', 40),
      ...done('shrunk', { volumes: { cache: '64Mi' } }),
      store('cache', 100),
      observe('after'),
    ],
    expected: { 'shrunk: order': 'cache 128Mi -> 64Mi', 'after: stored': '64Mi, no space left' },
  },
  {
    title: 'KEP-6030: a volume shrinks below what it stores, until that is removed',
    memory: '256Mi',
    volumes: [sized('cache', '128Mi')],
    steps: [
      store('cache', 100),
      ...refused('refused', { volumes: { cache: '48Mi' } }),
      { kind: 'empty', volume: 'cache' },
      { kind: 'sized', change: { volumes: { cache: '48Mi' } } },
      { kind: 'event', reason: 'ResizeCompleted' },
      observe('freed'),
    ],
    expected: { 'refused: volume cache': '128Mi', 'freed: volume cache': '48Mi' },
    difference: deferred,
    differs: {
      ...waits,
      'freed: events': [
        'ResizeCompleted, ResizeError, ResizeStarted',
        'ResizeCompleted, ResizeDeferred, ResizeStarted',
      ],
    },
  },
  {
    title: 'KEP-6030: limits and volume grow',
    memory: '256Mi',
    volumes: [sized('cache', '64Mi')],
    steps: done('up', { memory: { app: '384Mi' }, cpu: { app: '300m' }, volumes: { cache: '192Mi' } }),
    expected: { 'up: volume cache': '192Mi', 'up: app memory.max': '384Mi', 'up: app cpu.max': '300m' },
    difference: once,
    differs: {
      'up: order': [
        'pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; cache 64Mi -> 192Mi; pod cpu 200m -> 300m; app cpu 200m -> 300m',
        'pod memory 256Mi -> 384Mi; pod cpu 200m -> 300m; app memory 256Mi -> 384Mi; app cpu 200m -> 300m; cache 64Mi -> 192Mi',
      ],
    },
  },
  {
    title: 'KEP-6030: limits and volume shrink',
    memory: '384Mi',
    volumes: [sized('cache', '192Mi')],
    steps: done('down', { memory: { app: '256Mi' }, cpu: { app: '100m' }, volumes: { cache: '64Mi' } }),
    expected: { 'down: volume cache': '64Mi', 'down: app memory.max': '256Mi', 'down: app cpu.max': '100m' },
    difference: once,
    differs: {
      'down: order': [
        'cache 192Mi -> 64Mi; app memory 384Mi -> 256Mi; pod memory 384Mi -> 256Mi; app cpu 200m -> 100m; pod cpu 200m -> 100m',
        'cache 192Mi -> 64Mi; app memory 384Mi -> 256Mi; app cpu 200m -> 100m; pod memory 384Mi -> 256Mi; pod cpu 200m -> 100m',
      ],
    },
  },
  {
    title: 'KEP-6030: the limit grows and the volume shrinks',
    memory: '256Mi',
    volumes: [sized('cache', '128Mi')],
    steps: done('changed', { memory: { app: '320Mi' }, volumes: { cache: '64Mi' } }),
    expected: {
      'changed: order': 'cache 128Mi -> 64Mi; pod memory 256Mi -> 320Mi; app memory 256Mi -> 320Mi',
    },
  },
  {
    title: 'KEP-6030: the limit shrinks and the volume grows',
    memory: '320Mi',
    volumes: [sized('cache', '64Mi')],
    steps: done('changed', { memory: { app: '256Mi' }, volumes: { cache: '128Mi' } }),
    expected: {
      'changed: order': 'app memory 320Mi -> 256Mi; pod memory 320Mi -> 256Mi; cache 64Mi -> 128Mi',
    },
  },
  {
    title: 'KEP-6030: a volume grows above the limit of its pod',
    memory: '256Mi',
    volumes: [sized('cache', '64Mi')],
    steps: done('grown', { volumes: { cache: '320Mi' } }),
    expected: { 'grown: order': 'cache 64Mi -> 320Mi', 'grown: app sees cache': '320Mi' },
    difference: 'the shim adds a warning as an event',
    differs: {
      'grown: events': [
        'ResizeCompleted, ResizeStarted',
        'ResizeCompleted, ResizeStarted, VolumeSizeExceedsMemoryLimit',
      ],
    },
  },
  {
    title: 'KEP-6030: a volume of two containers grows with both limits',
    memory: '128Mi',
    volumes: [sized('cache', '64Mi')],
    containers: ['app', 'side'],
    steps: done('up', { memory: { app: '160Mi', side: '192Mi' }, volumes: { cache: '128Mi' } }),
    expected: {
      'up: order':
        'pod memory 256Mi -> 352Mi; app memory 128Mi -> 160Mi; side memory 128Mi -> 192Mi; cache 64Mi -> 128Mi',
      'up: app sees cache': '128Mi',
      'up: side sees cache': '128Mi',
    },
  },
  {
    title: 'KEP-6030: one volume shrinks and another grows with the limit',
    memory: '224Mi',
    volumes: [sized('one', '100Mi'), sized('other', '100Mi')],
    steps: done('changed', { memory: { app: '320Mi' }, volumes: { one: '50Mi', other: '250Mi' } }),
    expected: {
      'changed: order': 'one 100Mi -> 50Mi; pod memory 224Mi -> 320Mi; app memory 224Mi -> 320Mi; other 100Mi -> 250Mi',
    },
  },
  {
    title: 'KEP-6030: the second of two volumes cannot shrink',
    memory: '256Mi',
    volumes: [sized('one', '100Mi'), sized('other', '100Mi')],
    steps: [
      store('other', 60),
      ...refused('refused', { memory: { app: '320Mi' }, volumes: { one: '50Mi', other: '40Mi' } }),
    ],
    expected: { 'refused: app memory.max': '256Mi', 'refused: volume other': '100Mi' },
    difference: `${whole}; ${deferred}`,
    differs: {
      ...waits,
      'refused: order': ['one 100Mi -> 50Mi', undefined],
      'refused: volume one': ['50Mi', '100Mi'],
      'refused: app sees one': ['50Mi', '100Mi'],
    },
  },
  {
    title: 'KEP-6030: the limit grows, and a volume has no sizeLimit',
    memory: '256Mi',
    volumes: [{ name: 'cache', emptyDir: { medium: 'Memory' } }],
    steps: done('up', { memory: { app: '384Mi' } }),
    expected: { 'up: app memory.max': '384Mi' },
    difference: 'kubelet resizes only volumes with a sizeLimit; the shim resizes the others',
    isAlways: true,
    differs: {
      'up: order': [
        'pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi',
        'pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; cache 256Mi -> 384Mi',
      ],
      'up: volume cache': ['256Mi', '384Mi'],
      'up: app sees cache': ['256Mi', '384Mi'],
    },
  },
  {
    title: 'KEP-6030: the limit grows, and the sizeLimit of a volume is above the limit',
    memory: '256Mi',
    volumes: [{ name: 'cache', emptyDir: { medium: 'Memory', sizeLimit: '320Mi' } }],
    steps: done('up', { memory: { app: '384Mi' } }),
    expected: { 'up: app memory.max': '384Mi' },
    difference: 'kubelet mounts a volume within the limit of its pod and does not compare the two again',
    differs: {
      'up: order': [
        'pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi',
        'pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; cache 256Mi -> 320Mi',
      ],
      'up: volume cache': ['256Mi', '320Mi'],
      'up: app sees cache': ['256Mi', '320Mi'],
    },
  },
];

export const volumeResizeRows: readonly Row[] = cases.map(rowOf);

const both: SizeChange = { memory: { app: '384Mi' }, volumes: { one: '50Mi', other: '128Mi' } };

/** These rows end a process that all pods depend on. */
export const killedRows: readonly Row[] = [
  rowOf({
    title:
      'KEP-6030: the resizing process is killed once the limit of the pod has grown, and the resize is requested again',
    memory: '256Mi',
    volumes: [sized('one', '100Mi'), sized('other', '64Mi')],
    steps: [
      {
        kind: 'sizes',
        change: both,
        until: 'done',
        undone: { memory: { app: '256Mi' }, volumes: { one: '100Mi', other: '64Mi' } },
        killAt: 'pod memory.max',
      },
      observe('killed'),
      ...done('again', both),
    ],
    expected: {
      'killed: killed': 'in time',
      'again: volume one': '50Mi',
      'again: volume other': '128Mi',
      'again: app memory.max': '384Mi',
    },
    difference:
      'kubelet finishes a resize after a restart; the shim rolls it back, because its caller has had no answer',
    differs: {
      'killed: order': [
        'one 100Mi -> 50Mi; pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; other 64Mi -> 128Mi',
        [
          'one 100Mi -> 50Mi; pod memory 256Mi -> 384Mi; pod memory 384Mi -> 256Mi; one 50Mi -> 100Mi',
          'one 100Mi -> 50Mi; pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; app memory 384Mi -> 256Mi; pod memory 384Mi -> 256Mi; one 50Mi -> 100Mi',
        ],
      ],
      'killed: pod memory.max': ['384Mi', '256Mi'],
      'killed: app memory.max': ['384Mi', '256Mi'],
      'killed: volume one': ['50Mi', '100Mi'],
      'killed: volume other': ['128Mi', '64Mi'],
      'killed: app sees one': ['50Mi', '100Mi'],
      'killed: app sees other': ['128Mi', '64Mi'],
      'again: order': [
        undefined,
        'one 100Mi -> 50Mi; pod memory 256Mi -> 384Mi; app memory 256Mi -> 384Mi; other 64Mi -> 128Mi',
      ],
    },
    ignored: { 'killed: events': 'a killed process may not have sent its events' },
  }),
];
