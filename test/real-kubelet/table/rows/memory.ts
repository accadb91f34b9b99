import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { Pod } from '../pod.ts';
import { amounts, both, container, limits, READY, readyByFile, requests } from '../pod.ts';
import type { Row, WantedDifference } from '../row.ts';
import { backingOff, observe, ready, resize, resized, running, statusOf } from '../row.ts';

/** Pods with MemoryQoS: kubelet sets memory.high, and with TieredReservation memory.min or memory.low. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
/** kubelet's formula of memory.high with a throttling factor of 0.9. */
const high = (request: number, limit: number): string =>
  String(Math.floor(((request + (limit - request) * 0.9) * MiB) / 4096) * 4096);

/** @param tiered whether the policy is TieredReservation */
export const memoryQosRows = (tiered: boolean): readonly Row[] => {
  const reserved = (mebibytes: number): string => (tiered ? memory(mebibytes) : '0');
  /** Up to 1.36, both sides have the first value. */
  const podReserved = (label: string): readonly WantedDifference[] =>
    tiered
      ? [
          {
            field: `${label}: pod memory.low`,
            direct: memory(64),
            shim: [memory(64), memory(128)],
            reason: 'kubelet 1.37 has memory.low in its call for the pod, and writes it only when a limit changes',
          },
        ]
      : [];
  return [
    {
      title: 'KEP-2570: Burstable: memory.high follows limit and request',
      pod: { containers: [container('app', { requests: amounts('20m', '64Mi'), limits: amounts('100m', '128Mi') })] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
        ...resized('request up', { containers: { app: requests(undefined, '128Mi') } }),
        ...resized('CPU', { containers: { app: { limits: amounts('200m'), requests: amounts('40m') } } }),
        ...resized('both down', {
          containers: { app: { limits: amounts(undefined, '96Mi'), requests: amounts(undefined, '48Mi') } },
        }),
      ],
      expected: {
        'at first: app memory.high': high(64, 128),
        'at first: app memory.low': reserved(64),
        'limit up: app memory.high': high(64, 256),
        'request up: app memory.high': high(128, 256),
        'request up: app memory.low': reserved(128),
        'CPU: app memory.high': high(128, 256),
        'both down: app memory.high': high(48, 96),
        'both down: app memory.low': reserved(48),
        'both down: app memory.max': memory(96),
      },
      wanted: podReserved('CPU'),
    },
    {
      title: 'KEP-2570: Guaranteed: no memory.high, raised and lowered',
      pod: { containers: [container('app', both('100m', '64Mi'))] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('up', { containers: { app: both('150m', '128Mi') } }),
        ...resized('down', { containers: { app: both('50m', '48Mi') } }),
      ],
      expected: {
        'up: app memory.high': 'max',
        'up: app memory.min': reserved(128),
        'down: app memory.min': reserved(48),
        'down: pod memory.max': memory(48),
      },
    },
    {
      title: 'KEP-2570: requests only: memory.high follows the node',
      pod: { containers: [container('app', requests('20m', '64Mi'))] },
      steps: [
        running('app'),
        observe('at first'),
        ...resized('up', { containers: { app: requests('40m', '128Mi') } }),
        ...resized('limit added', { containers: { app: limits(undefined, '256Mi') } }),
      ],
      expected: {
        'up: app memory.low': reserved(128),
        'limit added: app memory.high': high(128, 256),
        'limit added: pod memory.max': memory(256),
      },
      wanted: podReserved('up'),
    },
  ];
};

const burstable = { requests: amounts('20m', '64Mi'), limits: amounts('200m', '128Mi') };
const restarting = { resizePolicy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }] };

export const swapRows: readonly Row[] = [
  {
    title: 'A8: Burstable: a new limit and new CPUs leave memory.swap.max',
    pod: { containers: [container('app', burstable)] },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
      ...resized('CPU', { containers: { app: { limits: amounts('400m'), requests: amounts('40m') } } }),
      ...resized('limit down', { containers: { app: limits(undefined, '96Mi') } }),
    ],
    expected: { 'limit up: app memory.max': memory(256), 'limit down: app memory.max': memory(96) },
  },
  {
    title: 'A8: Burstable: kubelet refuses a new memory request of what may swap, until it is withdrawn',
    pod: { containers: [container('app', burstable)] },
    steps: [
      running('app'),
      resize({ containers: { app: requests(undefined, '96Mi') } }),
      {
        kind: 'until',
        what: 'kubelet has refused it',
        holds: (pod) => pod.status.conditions?.some(({ type }) => type === 'PodResizePending') ?? false,
      },
      observe('refused'),
      ...resized('withdrawn', { containers: { app: requests(undefined, '64Mi') } }),
      { kind: 'resizectl', changes: ['app.requests.memory=96Mi'] },
      observe('by ResizePod'),
      ...resized('limit up', { containers: { app: limits(undefined, '256Mi') } }),
    ],
    expected: {
      'refused: condition PodResizePending':
        'True Infeasible In-place resize of containers with swap is not supported.',
      'refused: app memory.max': memory(128),
      'by ResizePod: app memory.max': memory(128),
      'limit up: app memory.max': memory(256),
    },
    wanted: [
      {
        field: 'by ResizePod: answer',
        direct: undefined,
        shim: 'SWAP_NOT_RESIZABLE',
        reason: 'only the shim has the call; it rejects what kubelet finds infeasible',
      },
    ],
  },
  {
    title: 'A8: Burstable with RestartContainer: memory.swap.max follows the request by a restart',
    pod: { containers: [container('app', burstable, restarting)] },
    steps: [
      running('app'),
      observe('at first'),
      ...resized('up', {
        containers: { app: { requests: amounts('20m', '128Mi'), limits: amounts('200m', '256Mi') } },
      }),
      ...resized('CPU', { containers: { app: { requests: amounts('40m'), limits: amounts('400m') } } }),
    ],
    expected: { 'up: app restarts': '1', 'up: app memory.max': memory(256), 'CPU: app restarts': '1' },
  },
  {
    title: 'A8: Guaranteed: no swap, raised and lowered',
    pod: { containers: [container('app', both('100m', '64Mi'))] },
    steps: [
      running('app'),
      ...resized('up', { containers: { app: both('150m', '128Mi') } }),
      ...resized('down', { containers: { app: both('50m', '48Mi') } }),
    ],
    expected: { 'up: app memory.swap.max': '0', 'down: app memory.swap.max': '0' },
  },
  {
    title: 'A8: requests only: more CPU, and a limit added to what may swap',
    pod: { containers: [container('app', requests('20m', '64Mi')), container('b', requests('20m', '64Mi'))] },
    steps: [
      running('app', 'b'),
      observe('at first'),
      ...resized('CPU up', { containers: { app: requests('40m') } }),
      ...resized('limit added', { containers: { app: limits(undefined, '256Mi') } }),
    ],
    expected: { 'limit added: app memory.max': memory(256) },
  },
];

const restarts = (pod: Pod): number => statusOf(pod, 'app')?.restartCount ?? 0;
const wasKilled = (pod: Pod): boolean => {
  const { state, lastState } = statusOf(pod, 'app') ?? {};
  return [state?.terminated, lastState?.terminated].some((ended) => ended?.reason === 'OOMKilled');
};

/** If kubelet tries between two kills, while the container runs, it raises the pod limit even without the shim. */
const heals = 'kubelet leaves the pod at its old limit, and the new one of the container does not fit in';

/** No CPU limit, so that the container is killed soon. */
const resources = (size: string) => ({ limits: amounts(undefined, size), requests: amounts('50m', size) });

/** Holds 48 MiB: dd reads one block, and cannot write more of it than fits into a pipe that nobody reads. */
const greedy = {
  command: [
    'sh',
    '-c',
    `dd if=/dev/zero bs=50331648 count=1 | { head -c 1 >/dev/null; touch ${READY}; sleep 1000000; }`,
  ],
  ...readyByFile,
};

export const oomRows: readonly Row[] = [
  {
    title: 'KEP-1287: an OOM crash loop is healed by a resize (kubernetes 138760)',
    pod: { containers: [container('app', resources('32Mi'), greedy)] },
    steps: [
      backingOff('app'),
      resize({ containers: { app: resources('128Mi') } }),
      {
        kind: 'until',
        side: 'direct',
        what: 'app to be OOM-killed twice more, or ready',
        holds: (pod, before) =>
          (wasKilled(pod) && restarts(pod) >= restarts(before) + 2) || statusOf(pod, 'app')?.ready === true,
      },
      ready('app', 'shim'),
      observe('resized'),
    ],
    expected: { 'resized: app reported allocated.memory': '128Mi' },
    wanted: [
      { field: 'resized: app ready', direct: ['false', 'true'], shim: 'true', reason: heals },
      { field: 'resized: pod memory.max', direct: [memory(32), memory(128)], shim: memory(128), reason: heals },
      { field: 'resized: pod reported limits.memory', direct: ['32Mi', '128Mi'], shim: '128Mi', reason: heals },
    ],
    ignored: {
      ...Object.fromEntries(
        ['app restarts', 'app state', 'pod OOM kills'].map((field) => [
          `resized: ${field}`,
          'a crash loop changes it all the time',
        ]),
      ),
      ...Object.fromEntries(
        ['app memory.*', 'app cpu.*', 'app OOM kills'].map((field) => [
          `resized: ${field}`,
          'a container in a crash loop has no cgroup most of the time',
        ]),
      ),
    },
  },
];
