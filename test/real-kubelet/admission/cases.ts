import type { Amounts, Container, PodSpec, Resources } from '../table/pod.ts';
import { amounts, both, container, limits, OVERHEAD_CLASS, requests } from '../table/pod.ts';
import { type Change, ready, running, type Step } from '../table/row.ts';

/**
 * Small resizes, and whether Kubernetes and ResizePod admit them. Each is requested of the real API server and kubelet,
 * and of the shim by ResizePod, for the same pod.
 */

/** `rejected` by the API server; `infeasible` or `deferred` by kubelet. */
export type Verdict = 'accepted' | 'rejected' | 'infeasible' | 'deferred';

export interface AdmissionCase {
  readonly title: string;
  readonly change: Change;
  readonly kubernetes: Verdict;
  /** `accepted`, or the reason of the error. */
  readonly resizePod: string;
  /** Why the two differ. */
  readonly difference?: string;
  /** Replaces the change for ResizePod, if the API has no equal value. */
  readonly changes?: readonly string[];
  /** Why a value differs after the resize, by part and file. */
  readonly values?: Readonly<Record<string, string>>;
}

export interface AdmissionGroup {
  /** Describes the pod. */
  readonly title: string;
  readonly pod: PodSpec;
  /** The wait until the pod may be resized. Default: until its app containers run. */
  readonly before?: readonly Step[];
  readonly cases: readonly AdmissionCase[];
}

type Expected = readonly [kubernetes: Verdict, resizePod: string, difference?: string];

const ok: Expected = ['accepted', 'accepted'];
const invalid: Expected = ['rejected', 'INVALID_VALUE'];
const qos: Expected = ['rejected', 'QOS_CLASS_CHANGES'];
const ENDED: Expected = [
  'accepted',
  'INIT_CONTAINER_ENDED',
  'the API server accepts the change, and kubelet never applies it',
];
const UNCREATED: Expected = [
  'accepted',
  'INIT_CONTAINER_NOT_RESIZABLE',
  'kubelet creates the container with the new values; ResizePod cannot change what has not been created',
];
const RESTART: Expected = [
  'accepted',
  'RESTART_REQUIRED',
  'kubelet restarts the container; only kubelet may, so ResizePod rejects the change',
];
const ZERO: Expected = [
  'accepted',
  'INVALID_VALUE',
  '0 in a CRI message keeps the present request, so the runtime cannot receive it',
];
const CGROUP: Expected = [
  'rejected',
  'accepted',
  'ResizePod limits the cgroup of the pod; the pod gets no pod-level resources, and keeps its QoS class',
];
const REMOVED: Expected = [
  'rejected',
  'accepted',
  'the API server cannot remove a limit; CRI can (-1), and so can ResizePod (`max`)',
];

const one = (title: string, change: Change, [kubernetes, resizePod, difference]: Expected): AdmissionCase => ({
  title,
  change,
  kubernetes,
  resizePod,
  ...(difference !== undefined && { difference }),
});

/** A case that changes the container `app`. */
const app = (title: string, resources: Resources, expected: Expected): AdmissionCase =>
  one(title, { containers: { app: resources } }, expected);

/** A case that changes the resources of the pod. */
const pod = (title: string, resources: Resources, expected: Expected): AdmissionCase =>
  one(title, { pod: resources }, expected);

const init = (title: string, name: string, resources: Resources, expected: Expected): AdmissionCase =>
  one(title, { initContainers: { [name]: resources } }, expected);

const of = (asked: Amounts, limited: Amounts): Resources => ({ requests: asked, limits: limited });
/** A JSON merge patch removes what is null. */
const none = null as unknown as string;

/** kubelet starts a container without a CPU request with the shares of the pod-level CPU limit. */
const sharesOf = (...names: readonly string[]): Readonly<Record<string, string>> =>
  Object.fromEntries(
    names.map((name) => [
      `${name} cpu.weight`,
      'kubelet sets the shares of a container without a CPU request to the minimum at its first resize',
    ]),
  );

/** Requests of 50m and 32Mi, limits of 100m and 64Mi. */
const burstable = of(amounts('50m', '32Mi'), amounts('100m', '64Mi'));
const restartFor = (resourceName: string): Partial<Container> => ({
  resizePolicy: [{ resourceName, restartPolicy: 'RestartContainer' }],
});
const inPlace: Partial<Container> = {
  resizePolicy: [
    { resourceName: 'cpu', restartPolicy: 'NotRequired' },
    { resourceName: 'memory', restartPolicy: 'NotRequired' },
  ],
};

export const admissionGroups: readonly AdmissionGroup[] = [
  {
    title: 'Burstable: requests 50m and 32Mi, limits 100m and 64Mi',
    pod: { containers: [container('app', burstable)] },
    cases: [
      app('memory limit up', limits(undefined, '96Mi'), ok),
      app('memory limit down', limits(undefined, '48Mi'), ok),
      app('memory limit equal to the request', limits(undefined, '32Mi'), ok),
      app('memory limit below the request', limits(undefined, '31Mi'), invalid),
      app('memory request up', requests(undefined, '48Mi'), ok),
      app('memory request down', requests(undefined, '16Mi'), ok),
      app('memory request equal to the limit', requests(undefined, '64Mi'), ok),
      app('memory request above the limit', requests(undefined, '65Mi'), invalid),
      app('memory request and limit up', of(amounts(undefined, '48Mi'), amounts(undefined, '128Mi')), ok),
      app('memory request and limit down', of(amounts(undefined, '16Mi'), amounts(undefined, '32Mi')), ok),
      app('memory request up, limit down', of(amounts(undefined, '40Mi'), amounts(undefined, '48Mi')), ok),
      app('CPU limit up', limits('200m'), ok),
      app('CPU limit down', limits('60m'), ok),
      app('CPU limit equal to the request', limits('50m'), ok),
      app('CPU limit below the request', limits('49m'), invalid),
      app('CPU request up', requests('80m'), ok),
      app('CPU request down', requests('20m'), ok),
      app('CPU request above the limit', requests('101m'), invalid),
      app('CPU request and limit up', of(amounts('80m'), amounts('300m')), ok),
      app('CPU up, memory down', of(amounts('60m', '16Mi'), amounts('200m', '48Mi')), ok),
      app('CPU down, memory up', of(amounts('20m', '40Mi'), amounts('60m', '128Mi')), ok),
      app('limits equal to the requests of CPU', requests('100m'), ok),
      app('limits equal to all requests', requests('100m', '64Mi'), qos),
      app('limits down to all requests', limits('50m', '32Mi'), qos),
      app('memory limit above the memory of the node', limits(undefined, '900Gi'), ok),
      app('CPU limit above the CPUs of the node', limits('400'), ok),
      app('memory request above the memory of the node', of(amounts('50m', '900Gi'), amounts('100m', '900Gi')), [
        'rejected',
        'EXCEEDS_NODE',
      ]),
      app('CPU request above the CPUs of the node', of(amounts('300', '32Mi'), amounts('300', '64Mi')), [
        'rejected',
        'EXCEEDS_NODE',
      ]),
      app('memory limit that is not a multiple of a page', limits(undefined, '70000001'), ok),
      app('memory limit with a decimal suffix', limits(undefined, '80M'), ok),
      app('memory limit with a fraction', limits(undefined, '70.5Mi'), ok),
      app('memory limit with an exponent', limits(undefined, '1e8'), ok),
      app('CPU limit with a fraction', limits('0.15'), ok),
      app('CPU limit with microseconds', limits('150500u'), ok),
      app('memory limit of 0', limits(undefined, '0'), invalid),
      app('CPU limit of 0', limits('0'), invalid),
      app('negative memory limit', limits(undefined, '-5Mi'), invalid),
      app('negative CPU limit', limits('-100m'), invalid),
      app('memory limit that is no quantity', limits(undefined, 'lots'), invalid),
      app('memory request of 0', requests(undefined, '0'), ZERO),
      app('CPU request of 0', requests('0'), ZERO),
      app('no change', burstable, ok),
      {
        ...app('memory limit removed', limits(undefined, none), REMOVED),
        changes: ['app.memory=max'],
      },
      { ...app('CPU limit removed', limits(none), REMOVED), changes: ['app.cpu=max'] },
      one('a container that does not exist', { containers: { nobody: limits('100m') } }, [
        'rejected',
        'UNKNOWN_CONTAINER',
      ]),
    ],
  },
  {
    title: 'Burstable: requests 50m and 32Mi, no limits',
    pod: { containers: [container('app', requests('50m', '32Mi'))] },
    cases: [
      app('memory limit added', limits(undefined, '64Mi'), ok),
      app('CPU limit added', limits('100m'), ok),
      app('both limits added', limits('100m', '64Mi'), ok),
      app('memory limit added below the request', limits(undefined, '16Mi'), invalid),
      app('CPU limit added below the request', limits('20m'), invalid),
      app('limits added that are equal to the requests', limits('50m', '32Mi'), qos),
      app('requests up', requests('80m', '64Mi'), ok),
      app('requests down', requests('20m', '16Mi'), ok),
      app('memory request up, limit added', of(amounts(undefined, '48Mi'), amounts(undefined, '96Mi')), ok),
    ],
  },
  {
    title: 'Burstable: memory limit of 64Mi, which is also the request',
    pod: { containers: [container('app', limits(undefined, '64Mi'))] },
    cases: [
      app('memory limit up', limits(undefined, '96Mi'), ok),
      app('memory limit below the request', limits(undefined, '48Mi'), invalid),
      app('memory request down', requests(undefined, '32Mi'), ok),
      app('memory request and limit down', of(amounts(undefined, '48Mi'), amounts(undefined, '48Mi')), ok),
      app('CPU request added', requests('50m'), ok),
      app('CPU limit added', limits('100m'), qos),
    ],
  },
  {
    title: 'Guaranteed: 100m and 64Mi',
    pod: { containers: [container('app', both('100m', '64Mi'))] },
    cases: [
      app('all values up', both('150m', '96Mi'), ok),
      app('all values down', both('50m', '48Mi'), ok),
      app('memory up', both('100m', '96Mi'), ok),
      app('memory down, CPU up', both('150m', '48Mi'), ok),
      app('CPU up', both('200m', '64Mi'), ok),
      app('only the memory limit up', limits(undefined, '96Mi'), qos),
      app('only the memory limit down', limits(undefined, '48Mi'), qos),
      app('only the CPU limit up', limits('200m'), qos),
      app('only the CPU limit down', limits('50m'), qos),
      app('only the memory request down', requests(undefined, '32Mi'), qos),
      app('only the CPU request down', requests('50m'), qos),
      app('only the memory request up', requests(undefined, '96Mi'), qos),
      app('only the CPU request up', requests('200m'), qos),
      app('more memory than the node has', both('100m', '900Gi'), ['rejected', 'EXCEEDS_NODE']),
      app('more CPUs than the node has', both('300', '64Mi'), ['rejected', 'EXCEEDS_NODE']),
    ],
  },
  {
    title: 'BestEffort',
    pod: { containers: [container('app', {})] },
    cases: [
      app('memory request added', requests(undefined, '32Mi'), qos),
      app('CPU request added', requests('50m'), qos),
      app('memory limit added', limits(undefined, '64Mi'), qos),
      app('CPU limit added', limits('100m'), qos),
      app('all values added', both('100m', '64Mi'), qos),
      pod('pod-level limits added', limits('100m', '64Mi'), CGROUP),
    ],
  },
  {
    title: 'Two containers, Burstable: 50m and 32Mi, limits 100m and 64Mi each',
    pod: { containers: [container('app', burstable), container('b', burstable)] },
    cases: [
      one('one up, one down', { containers: { app: limits('150m', '96Mi'), b: limits('60m', '48Mi') } }, ok),
      one('both up', { containers: { app: limits('150m', '96Mi'), b: limits('150m', '96Mi') } }, ok),
      one('both down', { containers: { app: limits('60m', '48Mi'), b: limits('60m', '48Mi') } }, ok),
      one(
        'one valid, one below its request',
        { containers: { app: limits('150m'), b: limits(undefined, '16Mi') } },
        invalid,
      ),
      one('one with equal values', { containers: { b: both('100m', '64Mi') } }, ok),
      one('both with equal values', { containers: { app: both('100m', '64Mi'), b: both('100m', '64Mi') } }, qos),
      pod('pod-level limits added', limits('300m', '256Mi'), ok),
      pod('pod-level requests added', requests('150m', '96Mi'), ok),
      pod('a pod-level limit below the limit of a container', limits(undefined, '48Mi'), invalid),
      pod('a pod-level request below the sum of the containers', requests(undefined, '48Mi'), invalid),
    ],
  },
  {
    title: 'Two containers, Guaranteed: 50m and 64Mi each',
    pod: { containers: [container('app', both('50m', '64Mi')), container('b', both('50m', '64Mi'))] },
    cases: [
      one('one up', { containers: { app: both('80m', '96Mi') } }, ok),
      one('one up, one down', { containers: { app: both('80m', '96Mi'), b: both('30m', '48Mi') } }, ok),
      one('one with a lower request', { containers: { app: requests('30m') } }, qos),
    ],
  },
  {
    title: 'Two containers: one with limits, one without any resources',
    pod: { containers: [container('app', burstable), container('b', {})] },
    cases: [
      app('limits up', limits('150m', '96Mi'), ok),
      one('limits added to the other', { containers: { b: limits('100m', '64Mi') } }, ok),
      one('requests added to the other', { containers: { b: requests('20m', '16Mi') } }, ok),
      app('limits down', limits('60m', '48Mi'), ok),
      app('requests equal to the limits', requests('100m', '64Mi'), ok),
    ],
  },
  {
    title: 'A sidecar (50m and 32Mi, limits 100m and 64Mi) and an app container with the same values',
    pod: {
      initContainers: [container('side', burstable, { restartPolicy: 'Always' })],
      containers: [container('app', burstable)],
    },
    before: [running('side', 'app')],
    cases: [
      init('sidecar: limits up', 'side', limits('150m', '96Mi'), ok),
      init('sidecar: limits down', 'side', limits('60m', '48Mi'), ok),
      init('sidecar: requests up', 'side', requests('80m', '48Mi'), ok),
      init('sidecar: memory limit below the request', 'side', limits(undefined, '16Mi'), invalid),
      init('sidecar: request above the limit', 'side', requests('200m'), invalid),
      one(
        'sidecar up, app down',
        { initContainers: { side: limits('150m', '96Mi') }, containers: { app: limits('60m', '48Mi') } },
        ok,
      ),
      one(
        'requests equal to the limits in both',
        { initContainers: { side: requests('100m', '64Mi') }, containers: { app: requests('100m', '64Mi') } },
        qos,
      ),
      {
        ...init('sidecar: memory limit removed', 'side', limits(undefined, none), REMOVED),
        changes: ['side.memory=max'],
      },
    ],
  },
  {
    title: 'A running init container (50m and 32Mi, limits 100m and 64Mi)',
    pod: {
      initContainers: [container('setup', burstable)],
      containers: [container('app', burstable)],
    },
    before: [running('setup')],
    cases: [
      init('limits up', 'setup', limits('150m', '96Mi'), ok),
      init('limits down', 'setup', limits('60m', '48Mi'), ok),
      init('requests up', 'setup', requests('80m', '48Mi'), ok),
      init('memory limit below the request', 'setup', limits(undefined, '16Mi'), invalid),
      app('the app container, which has not been created', limits('150m', '96Mi'), [
        'accepted',
        'NO_RUNNING_CONTAINER',
        'kubelet creates the container with the new values; ResizePod waits for it with `defer`',
      ]),
    ],
  },
  {
    title: 'An init container that has ended, and one that runs after it',
    pod: {
      initContainers: [
        container('first', burstable, { command: ['true'] }),
        container('second', burstable),
        container('third', burstable),
      ],
      containers: [container('app', burstable)],
    },
    before: [running('second')],
    cases: [
      init('the one that has ended', 'first', limits('150m', '96Mi'), ENDED),
      init('the one that runs', 'second', limits('150m', '96Mi'), ok),
      init('one that has not been created', 'third', limits('150m', '96Mi'), UNCREATED),
    ],
  },
  {
    title: 'A running init container, and an app container whose resizePolicy is RestartContainer',
    pod: {
      initContainers: [container('setup', burstable)],
      containers: [container('app', burstable, restartFor('memory'))],
    },
    before: [running('setup')],
    cases: [init('init container: limits up', 'setup', limits('150m', '96Mi'), ok)],
  },
  {
    title:
      'Pod-level requests 100m and 64Mi, limits 200m and 128Mi; a container with limits of 100m and 96Mi, and one without any',
    pod: {
      resources: of(amounts('100m', '64Mi'), amounts('200m', '128Mi')),
      containers: [container('app', of(amounts('50m', '32Mi'), amounts('100m', '96Mi'))), container('b', {})],
    },
    cases: [
      { ...pod('pod limits up', limits('300m', '192Mi'), ok), values: sharesOf('b') },
      { ...pod('pod limits down', limits('150m', '112Mi'), ok), values: sharesOf('b') },
      { ...pod('pod memory limit equal to the container limit', limits(undefined, '96Mi'), ok), values: sharesOf('b') },
      pod('pod memory limit below the container limit', limits(undefined, '95Mi'), invalid),
      pod('pod CPU limit below the container limit', limits('99m'), invalid),
      pod('pod requests up', requests('150m', '96Mi'), ok),
      pod('pod requests down', requests('60m', '48Mi'), ok),
      pod('pod memory request below the container requests', requests(undefined, '31Mi'), invalid),
      pod('pod CPU request below the container requests', requests('49m'), invalid),
      pod('pod request above the pod limit', requests(undefined, '129Mi'), invalid),
      pod('pod limit below the pod request', limits(undefined, '63Mi'), invalid),
      pod('pod requests equal to the pod limits', requests('200m', '128Mi'), qos),
      pod('pod memory request above the memory of the node', of(amounts('100m', '900Gi'), amounts('200m', '900Gi')), [
        'rejected',
        'EXCEEDS_NODE',
      ]),
      app('container limit up within the pod limit', limits('150m', '128Mi'), ok),
      app('container memory limit above the pod limit', limits(undefined, '129Mi'), invalid),
      app('container CPU limit above the pod limit', limits('201m'), invalid),
      app('container request up within the pod request', requests('80m', '64Mi'), ok),
      app('container memory request above the pod request', requests(undefined, '65Mi'), invalid),
      app('container CPU request above the pod request', requests('100m', '32Mi'), ok),
      {
        ...one(
          'container and pod limits up',
          { containers: { app: limits('250m', '160Mi') }, pod: limits('300m', '192Mi') },
          ok,
        ),
        values: sharesOf('b'),
      },
      {
        ...one(
          'container and pod limits down',
          { containers: { app: limits('60m', '48Mi') }, pod: limits('110m', '80Mi') },
          ok,
        ),
        values: sharesOf('b'),
      },
      one('a limit for the other container', { containers: { b: limits('50m', '32Mi') } }, ok),
      one(
        'a limit for the other container above the pod limit',
        { containers: { b: limits(undefined, '256Mi') } },
        invalid,
      ),
      one(
        'a request of the other container above the rest of the pod request',
        { containers: { b: requests(undefined, '48Mi') } },
        invalid,
      ),
      { ...pod('pod memory limit removed', limits(undefined, none), REMOVED), changes: ['pod.memory=max'] },
    ],
  },
  {
    title: 'Pod-level limits alone: 100m and 128Mi, two containers without any resources',
    pod: { resources: limits('100m', '128Mi'), containers: [container('app', {}), container('b', {})] },
    cases: [
      pod('pod limits up', limits('150m', '192Mi'), qos),
      { ...pod('pod limits and requests up', both('150m', '192Mi'), ok), values: sharesOf('app', 'b') },
      { ...pod('pod limits and requests down', both('80m', '96Mi'), ok), values: sharesOf('app', 'b') },
      pod('pod requests down', requests('80m', '64Mi'), qos),
      app('a container limit within the pod limit', limits('80m', '64Mi'), ok),
      app('a container limit above the pod limit', limits(undefined, '192Mi'), invalid),
      app('container requests above the pod requests', requests('250m'), invalid),
    ],
  },
  {
    title: 'Pod-level requests alone: 100m and 64Mi, a container with requests of 50m and 32Mi',
    pod: { resources: requests('100m', '64Mi'), containers: [container('app', requests('50m', '32Mi'))] },
    cases: [
      pod('pod limits added', limits('200m', '128Mi'), ok),
      pod('pod requests up', requests('150m', '96Mi'), ok),
      pod('pod memory request below the container request', requests(undefined, '16Mi'), invalid),
      app('container memory limit added', limits(undefined, '256Mi'), ok),
      app('container memory request above the pod request', requests(undefined, '96Mi'), invalid),
    ],
  },
  {
    title: 'resizePolicy RestartContainer for memory (50m and 32Mi, limits 100m and 64Mi)',
    pod: { containers: [container('app', burstable, restartFor('memory'))] },
    cases: [
      app('memory limit up', limits(undefined, '96Mi'), RESTART),
      app('memory request up', requests(undefined, '48Mi'), RESTART),
      app('CPU limit up', limits('200m'), ok),
      app('memory limit below the request', limits(undefined, '16Mi'), invalid),
    ],
  },
  {
    title: 'resizePolicy NotRequired for both resources (50m and 32Mi, limits 100m and 64Mi)',
    pod: { containers: [container('app', burstable, inPlace)] },
    cases: [app('limits up', limits('200m', '96Mi'), ok), app('limits down', limits('60m', '48Mi'), ok)],
  },
  {
    title: 'RuntimeClass overhead of 20m and 120Mi (50m and 32Mi, limits 100m and 64Mi)',
    pod: { runtimeClassName: OVERHEAD_CLASS, containers: [container('app', burstable)] },
    cases: [
      app('limits up', limits('200m', '96Mi'), ok),
      app('limits down', limits('60m', '48Mi'), ok),
      app('requests up', requests('80m', '48Mi'), ok),
      app('memory limit below the request', limits(undefined, '16Mi'), invalid),
    ],
  },
  {
    title: 'RuntimeClass overhead of 20m and 120Mi, Guaranteed: 100m and 64Mi',
    pod: { runtimeClassName: OVERHEAD_CLASS, containers: [container('app', both('100m', '64Mi'))] },
    cases: [
      app('all values up', both('150m', '96Mi'), ok),
      app('only the memory limit up', limits(undefined, '96Mi'), qos),
    ],
  },
  {
    title: 'RuntimeClass overhead of 20m and 120Mi, pod-level requests 60m and 64Mi, limits 200m and 128Mi',
    pod: {
      runtimeClassName: OVERHEAD_CLASS,
      resources: of(amounts('60m', '64Mi'), amounts('200m', '128Mi')),
      containers: [container('app', of(amounts('50m', '32Mi'), amounts('100m', '96Mi')))],
    },
    cases: [
      { ...pod('pod limits up', limits('300m', '192Mi'), ok), changes: ['pod.cpu=320m', 'pod.memory=312Mi'] },
      {
        ...pod('pod memory limit below the container limit', limits(undefined, '95Mi'), invalid),
        changes: ['pod.memory=215Mi'],
      },
      {
        ...pod('pod memory request below the container requests', requests(undefined, '31Mi'), invalid),
        changes: ['pod.requests.memory=151Mi'],
      },
      app('container memory limit above the pod limit', limits(undefined, '129Mi'), invalid),
    ],
  },
  {
    title: 'A container that holds 40Mi of its 64Mi',
    pod: {
      containers: [
        container('app', of(amounts('20m', '16Mi'), amounts('400m', '64Mi')), {
          command: [
            'sh',
            '-c',
            'dd if=/dev/zero bs=40M count=1 | { head -c 1 >/dev/null; touch /tmp/ready; exec sleep 1000000; }',
          ],
          readinessProbe: { exec: { command: ['test', '-e', '/tmp/ready'] }, periodSeconds: 2 },
        }),
      ],
    },
    before: [ready('app'), { kind: 'measured' }],
    cases: [
      app('memory limit below what is in use', limits(undefined, '24Mi'), ['deferred', 'MEMORY_NOT_RECLAIMABLE']),
      app('memory limit up', limits(undefined, '96Mi'), ok),
    ],
  },
];

/** Requests of a pod that runs next to those of {@link fullNodeGroups}, on a node with one CPU. */
export const filler: PodSpec = { containers: [container('filler', requests('500m', '64Mi'))] };

export const fullNodeGroups: readonly AdmissionGroup[] = [
  {
    title: 'Other pods have requested half of the CPU of the node (requests 20m and 16Mi, limits 900m and 64Mi)',
    pod: { containers: [container('app', of(amounts('20m', '16Mi'), amounts('900m', '64Mi')))] },
    cases: [
      app('CPU request that does not fit next to the others', requests('800m'), ['deferred', 'NODE_FULL']),
      app('CPU limit that does not fit next to the others', limits('1900m'), ok),
      app('CPU request above the CPUs of the node', of(amounts('1001m'), amounts('2')), ['rejected', 'EXCEEDS_NODE']),
      app('CPU request that does not fit, memory limit up', of(amounts('800m'), amounts('900m', '96Mi')), [
        'deferred',
        'NODE_FULL',
      ]),
      app('memory request up', requests(undefined, '32Mi'), ok),
    ],
  },
];

/** Under the static CPU policy; one of two CPUs is left for pods. */
export const staticCpuGroups: readonly AdmissionGroup[] = [
  {
    title: 'Static CPU policy, Guaranteed with a CPU of its own: 1 and 64Mi',
    pod: { containers: [container('app', both('1', '64Mi'))] },
    cases: [
      app('CPU down', both('500m', '64Mi'), ['infeasible', 'EXCLUSIVE_CPUS']),
      app('memory up', both('1', '96Mi'), ok),
    ],
  },
  {
    title: 'Static CPU policy, Guaranteed without CPUs of its own: 100m and 64Mi',
    pod: { containers: [container('app', both('100m', '64Mi'))] },
    cases: [
      app('CPU up', both('200m', '64Mi'), ['infeasible', 'EXCLUSIVE_CPUS']),
      app('memory up', both('100m', '96Mi'), ok),
    ],
  },
  {
    title: 'Static CPU policy, Burstable: 50m and 32Mi, limits 100m and 64Mi',
    pod: { containers: [container('app', burstable)] },
    cases: [app('CPU limit and request up', of(amounts('80m'), amounts('200m')), ok)],
  },
];
