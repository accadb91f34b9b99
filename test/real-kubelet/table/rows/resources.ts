import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { Container } from '../pod.ts';
import { amounts, both, container, limits, READY, readyByFile, requests, sized } from '../pod.ts';
import type { Row } from '../row.ts';
import { loweredByRestart, observe, ready, rejected, resize, resized, running } from '../row.ts';

/** Pods with each combination of requests and limits, at the level of containers and of the pod. */

const memory = (mebibytes: number): string => String(mebibytes * MiB);
const restartFor = (resourceName: string) => ({
  resizePolicy: [{ resourceName, restartPolicy: 'RestartContainer' }],
});

/**
 * Allocates this much memory, which cannot be reclaimed if the limit is above it: dd reads one block, and cannot write
 * more of it than fits into a pipe without a reader.
 */
const holding = (mebibytes: number): Partial<Container> => ({
  command: [
    'sh',
    '-c',
    `[ "$(cat /sys/fs/cgroup/memory.max)" -gt ${mebibytes * MiB} ] || { touch ${READY}; exec sleep 1000000; }
    dd if=/dev/zero bs=${mebibytes * MiB} count=1 | { head -c 1 >/dev/null; touch ${READY}; exec sleep 1000000; }`,
  ],
  ...readyByFile,
});

/** Reported for a decrease that does not fit. A container that is restarted has no such decrease. */
const DEFERRED = 'MemoryDecreaseDeferred';

export const resourceRows: readonly Row[] = [
  {
    title: 'KEP-1287: RestartContainer for memory: CPU in place, memory by a restart, also below what is in use',
    pod: {
      containers: [
        container('app', sized(200, '64Mi'), { ...holding(100), ...restartFor('memory') }),
        container('b', sized(200, '64Mi'), holding(40)),
      ],
    },
    steps: [
      ready('b'),
      ready('app'),
      ...resized('CPU', { containers: { app: sized(400, '64Mi') } }),
      ...resized('memory up', { containers: { app: sized(400, '128Mi') } }),
      ready('app'),
      ...loweredByRestart('memory down', { containers: { app: sized(400, '64Mi') } }),
      ready('app'),
      observe('at last', DEFERRED),
    ],
    expected: {
      'CPU: app restarts': '0',
      'memory up: app restarts': '1',
      'memory up: app memory.max': memory(128),
      'memory up: pod memory.max': memory(192),
      'memory down: app restarts': '2',
      'memory down: b restarts': '0',
      [`at last: event ${DEFERRED}`]: 'no',
    },
    // The pod uses more than its new limit until the restart. Its status reports the limit of the cgroup.
    wanted: ['memory down', 'at last'].flatMap((label) => {
      const reason = 'kubelet compares once, with a figure that may be from before it has killed the container';
      return [
        { field: `${label}: pod memory.max`, direct: [memory(128), memory(192)], shim: memory(128), reason },
        { field: `${label}: pod reported limits.memory`, direct: ['128Mi', '192Mi'], shim: '128Mi', reason },
      ];
    }),
    ignored: {
      'memory up: app ready': 'the probe follows the start',
      'memory down: app ready': 'the probe follows the start',
    },
  },
  {
    title: 'KEP-1287: RestartContainer for CPU: memory in place, CPU by a restart',
    pod: {
      containers: [container('app', sized(200, '64Mi'), restartFor('cpu')), container('b', sized(200, '64Mi'))],
    },
    steps: [
      running('app', 'b'),
      ...resized('memory', { containers: { app: sized(200, '128Mi') } }),
      ...resized('CPU up', { containers: { app: sized(600, '128Mi') } }),
      ...loweredByRestart('CPU and memory down', { containers: { app: sized(200, '64Mi') } }),
    ],
    expected: {
      'memory: app restarts': '0',
      'CPU up: app restarts': '1',
      'CPU up: pod cpu.max': '80000 100000',
      'CPU and memory down: app restarts': '2',
      'CPU and memory down: pod memory.max': memory(128),
    },
  },
  {
    title: 'KEP-2837: pod-level resources alone: raised and lowered',
    pod: {
      resources: { requests: amounts('40m', '64Mi'), limits: amounts('100m', '128Mi') },
      containers: [container('a', {}), container('b', {})],
    },
    steps: [
      running('a', 'b'),
      observe('at first'),
      ...resized('memory up', { pod: limits(undefined, '256Mi') }),
      ...resized('CPU up', { pod: limits('200m') }),
      ...resized('requests up', { pod: requests('60m', '128Mi') }),
      ...resized('down', { pod: { limits: amounts('100m', '128Mi'), requests: amounts('40m', '64Mi') } }),
      ...resized('memory down alone', { pod: { limits: amounts(undefined, '96Mi') } }),
    ],
    expected: {
      'at first: pod memory.max': memory(128),
      'memory up: pod memory.max': memory(256),
      'memory up: b memory.max': memory(256),
      'CPU up: pod cpu.max': '20000 100000',
      'down: pod memory.max': memory(128),
      'down: pod cpu.max': '10000 100000',
      'memory down alone: pod memory.max': memory(96),
    },
  },
  {
    title: 'KEP-2837: pod-level resources and resources of one container: each raised and lowered',
    pod: {
      resources: { requests: amounts('60m', '128Mi'), limits: amounts('200m', '256Mi') },
      containers: [
        container('a', { requests: amounts('20m', '32Mi'), limits: amounts('100m', '64Mi') }),
        container('b', {}),
      ],
    },
    steps: [
      running('a', 'b'),
      observe('at first'),
      ...resized('container up', { containers: { a: limits('150m', '128Mi') } }),
      ...resized('pod up', { pod: limits('300m', '384Mi') }),
      ...resized('container down, pod down', {
        containers: { a: limits('50m', '48Mi') },
        pod: limits('100m', '192Mi'),
      }),
    ],
    expected: {
      'at first: pod memory.max': memory(256),
      'container up: a memory.max': memory(128),
      'container up: pod memory.max': memory(256),
      'pod up: pod memory.max': memory(384),
      'container down, pod down: a memory.max': memory(48),
      'container down, pod down: pod memory.max': memory(192),
    },
  },
  {
    title: 'KEP-1287: BestEffort: the API server rejects resources, and nothing changes',
    pod: { containers: [container('app', {})] },
    steps: [
      running('app'),
      observe('at first'),
      ...rejected('requests', { containers: { app: requests('20m', '32Mi') } }),
      ...rejected('limits', { containers: { app: limits('20m', '32Mi') } }),
    ],
    expected: {
      'at first: pod memory.max': 'max',
      'requests: is rejected': 'yes',
      'limits: is rejected': 'yes',
      'limits: pod memory.max': 'max',
      'limits: pod cpu.weight': '1',
    },
  },
  {
    title: 'KEP-1287: requests only: raised and lowered, with a BestEffort-like sibling',
    pod: { containers: [container('app', requests('20m', '32Mi')), container('b', {})] },
    steps: [
      running('app', 'b'),
      observe('at first'),
      ...resized('up', { containers: { app: requests('100m', '64Mi') } }),
      ...resized('down', { containers: { app: requests('10m', '16Mi') } }),
    ],
    expected: { 'up: pod memory.max': 'max', 'up: pod cpu.max': 'max 100000', 'down: app cpu.max': 'max 100000' },
  },
  {
    title: 'KEP-1287: limits added to one container and then to all; the API server rejects their removal',
    pod: { containers: [container('a', requests('20m', '32Mi')), container('b', requests('20m', '32Mi'))] },
    steps: [
      running('a', 'b'),
      ...resized('a has limits', { containers: { a: limits('100m', '64Mi') } }),
      ...resized('both have limits', { containers: { b: limits('100m', '96Mi') } }),
      resize({ containers: { b: { limits: { cpu: null, memory: null } as unknown as Record<string, string> } } }),
      observe('removal'),
      ...resized('raised', { containers: { a: limits('150m', '128Mi'), b: limits('50m', '64Mi') } }),
    ],
    expected: {
      'a has limits: a memory.max': memory(64),
      'a has limits: pod memory.max': 'max',
      'both have limits: pod memory.max': memory(160),
      'both have limits: pod cpu.max': '20000 100000',
      'removal: is rejected': 'yes',
      'removal: pod memory.max': memory(160),
      'raised: pod memory.max': memory(192),
    },
  },
  {
    title: 'A5: more than the node has: the API server rejects such requests, and limits are allowed',
    pod: { containers: [container('app', sized(200, '64Mi'))] },
    steps: [
      running('app'),
      ...rejected('refused', {
        containers: { app: { limits: amounts('200m', '1000Gi'), requests: amounts('20m', '1000Gi') } },
      }),
      ...resized('fits', { containers: { app: sized(400, '96Mi') } }),
      ...resized('limit above the node', { containers: { app: limits('4', '1000Gi') } }),
    ],
    expected: {
      'refused: app memory.max': memory(64),
      'fits: pod memory.max': memory(96),
      'limit above the node: pod memory.max': memory(1000 * 1024),
      'limit above the node: pod cpu.max': '400000 100000',
    },
  },
];

/** Pods under the static CPU policy. kubelet reserves CPU 0 for itself, so that a container can have CPU 1 alone. */

/** kubelet sets no quota for a container with exclusive CPUs (DisableCPUQuotaWithExclusiveCPUs). */
const NO_QUOTA = 'max 100000';

export const cpuRows: readonly Row[] = [
  {
    title: 'KEP-1287: exclusive CPUs: a change of CPU is infeasible, memory is resized in place',
    pod: { containers: [container('app', both('1', '64Mi'))] },
    steps: [
      running('app'),
      {
        kind: 'until',
        what: 'kubelet reports the resources',
        holds: (pod) => pod.status.containerStatuses?.[0]?.allocatedResources?.['cpu'] === '1',
      },
      observe('at first'),
      resize({ containers: { app: { limits: amounts('500m'), requests: amounts('500m') } } }),
      {
        kind: 'until',
        what: 'kubelet has refused it',
        holds: (pod) => pod.status.conditions?.some(({ type }) => type === 'PodResizePending') ?? false,
      },
      observe('refused'),
      ...resized('withdrawn', { containers: { app: both('1', '64Mi') } }),
      { kind: 'resizectl', changes: ['app.cpu=500m', 'app.requests.cpu=500m'] },
      observe('by ResizePod'),
      ...resized('memory', { containers: { app: both('1', '96Mi') } }),
    ],
    expected: {
      'at first: app cpuset.cpus': '1',
      'refused: condition PodResizePending':
        'True Infeasible Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
      'refused: app cpu.max': NO_QUOTA,
      'refused: app cpuset.cpus': '1',
      'by ResizePod: app cpu.max': NO_QUOTA,
      'by ResizePod: app cpuset.cpus': '1',
      'memory: app memory.max': String(96 * MiB),
      'memory: app cpuset.cpus': '1',
      'memory: app cpu.max': NO_QUOTA,
      'memory: app restarts': '0',
    },
    wanted: [
      {
        field: 'by ResizePod: answer',
        direct: undefined,
        shim: 'EXCLUSIVE_CPUS',
        reason: 'only the shim has the call; it rejects what kubelet finds infeasible',
      },
    ],
  },
];
