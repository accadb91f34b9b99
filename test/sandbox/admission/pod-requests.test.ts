import { describe, expect, test } from 'vitest';
import { bytes, cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import { requestsAfter, requestsNow } from '../../../src/sandbox/admission/pod-level.ts';
import {
  addRequests,
  admittedRequests,
  amountsAfter,
  amountsNow,
  areRequestsFreed,
  podRequests,
  requestOfShares,
} from '../../../src/sandbox/admission/pod-requests.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, ContainerKind, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../src/sandbox/pods/pod-spec.ts';
import type { Limits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { PERIOD } from '../../support/resize/pods.ts';

const amounts = (memory: number, milliCpu: number): Amounts => ({ memory: bytes(memory), milliCpu });
const container = (kind: ContainerKind, memory: number, milliCpu: number) => ({
  kind,
  requests: amounts(memory, milliCpu),
});
const period = microseconds(100_000);

describe('the requests of a pod', () => {
  const app = container('app', 100, 200);
  test.each<[string, Parameters<typeof podRequests>[0]['containers'], number, number]>([
    ['app containers and sidecars add up', [container('sidecar', 10, 20), app, app], 210, 420],
    ['an ephemeral container requests nothing', [app, container('ephemeral', 1000, 1000)], 100, 200],
    [
      'an init container counts with the sidecars before it',
      [container('sidecar', 10, 20), container('init', 95, 1), app],
      110,
      220,
    ],
    [
      'an init container determines the request if it needs more than the app containers',
      [container('sidecar', 10, 20), container('init', 200, 1), app],
      210,
      220,
    ],
    [
      'a sidecar after an init container does not count with it',
      [container('init', 200, 1), container('sidecar', 10, 20), app],
      200,
      220,
    ],
    ['an app container does not count with an init container', [app, container('init', 150, 1)], 150, 200],
    ['the largest init container counts', [container('init', 300, 1), container('init', 200, 400), app], 300, 400],
    ['a container without requests adds nothing', [{ kind: 'app' }, app], 100, 200],
    ['a container of unknown kind is an app container', [container('unknown', 1, 2), app], 101, 202],
    ['no containers request nothing', [], 0, 0],
  ])('in the requests of a pod, %s', (_, containers, memory, milliCpu) => {
    expect(podRequests({ containers })).toEqual({ memory, milliCpu });
  });

  test('pod-level requests replace the sum of the containers per resource, and the overhead is added', () => {
    const overhead = { memory: bytes(5), cpu: { quota: microseconds(25_000), period } };
    const unlimited = { memory: bytes(5), cpu: { quota: 'max' as const, period } };
    expect(podRequests({ containers: [app], level: { memory: bytes(7) }, overhead })).toEqual({
      memory: 12,
      milliCpu: 450,
    });
    expect(podRequests({ containers: [app], level: { milliCpu: 7 }, overhead: unlimited })).toEqual({
      memory: 105,
      milliCpu: 7,
    });
  });
});

describe('requests that kubelet has admitted', () => {
  const entry = (requests?: PodEntry['requests']): PodEntry => ({
    containers: new Map(),
    pod: undefined,
    ...(requests && { requests }),
    isComplete: true,
  });
  const admitted = entry({
    containers: new Map([
      ['init', amounts(500, 1)],
      ['app', amounts(100, 200)],
    ]),
    pod: undefined,
  });
  const spec = [
    { name: 'init', kind: 'init' },
    { name: 'app', kind: 'app', requests: amounts(1, 1) },
    { name: 'proxy', kind: 'app', requests: amounts(10, 20) },
  ] as unknown as readonly SpecContainer[];

  test('without a spec, the admitted requests of all listed containers add up', () => {
    expect(admittedRequests(admitted, undefined, undefined)).toEqual({ memory: 600, milliCpu: 201 });
  });
  test('with a spec, each container counts by its kind, with its admitted or otherwise its declared requests', () => {
    expect(admittedRequests(admitted, spec, undefined)).toEqual({ memory: 500, milliCpu: 220 });
  });
  test('admitted requests include pod-level requests and the overhead', () => {
    const level = entry({ containers: new Map(), pod: { memory: bytes(50) } });
    const overhead = { memory: bytes(5), cpu: { quota: microseconds(1000), period } };
    expect(admittedRequests(level, undefined, overhead)).toEqual({ memory: 55, milliCpu: 10 });
  });
  test('an entry without requests counts with the requests of the spec, or with none', () => {
    expect(admittedRequests(entry(), undefined, undefined)).toEqual({ memory: 0, milliCpu: 0 });
    expect(admittedRequests(entry(), spec, undefined)).toEqual({ memory: 11, milliCpu: 21 });
  });
});

test('addRequests adds up memory and CPU', () => {
  expect(addRequests([])).toEqual({ memory: 0, milliCpu: 0 });
  expect(
    addRequests([
      { memory: bytes(1), milliCpu: 2 },
      { memory: bytes(3), milliCpu: 4 },
    ]),
  ).toEqual({ memory: 4, milliCpu: 6 });
});

/** The limits and requests of one container, and its shares in the runtime (undefined: it does not run). */
function state(
  shares: number | undefined,
  requests: Amounts | undefined,
  more: Partial<DeclaredContainer> = {},
): PodState {
  const period = microseconds(100_000);
  return {
    memory: 'max',
    cpu: { quota: 'max', period },
    weight: undefined,
    overhead: { memory: bytes(0), cpu: { quota: microseconds(0), period } },
    containers:
      shares === undefined
        ? []
        : [{ id: 'id', memory: bytes(8192), cpu: { quota: microseconds(20_000), period }, shares: cpuShares(shares) }],
    volumes: [],
    declared: {
      source: 'spec',
      containers: [
        {
          name: 'app',
          kind: 'app',
          state: 'running',
          id: 'id',
          limits: { memory: bytes(4096) },
          ...(requests && { requests }),
          ...more,
        },
      ],
      volumes: new Map(),
    },
  };
}
const asking = (limits: Limits, more: Partial<DesiredPod> = {}): DesiredPod => ({
  pod: {},
  containers: new Map([['app', limits]]),
  volumes: new Map(),
  ...more,
});
const nothing = asking({});

describe('the CPU request', () => {
  test.each<[string, number | undefined, Amounts | undefined, number | undefined]>([
    ['is derived from the shares in the runtime', 512, { milliCpu: 100 }, 500],
    ['is the declared request if the container does not run', undefined, { milliCpu: 100 }, 100],
    ['is the declared request if the runtime has no shares', 0, { milliCpu: 100 }, 100],
    ['is none if the runtime has the minimum and nothing is declared', 2, {}, undefined],
    ['is not known if the runtime has the minimum and nothing else is known', 2, undefined, undefined],
    ['is the declared request if it results in the minimum', 2, { milliCpu: 1 }, 1],
    ['is the largest request that results in the minimum if more is declared', 2, { milliCpu: 500 }, 2],
    ['is above the minimum with three shares', 3, { milliCpu: 500 }, 3],
  ])('the CPU request %s', (_, shares, requests, milliCpu) => {
    expect(amountsNow(state(shares, requests), nothing)[0]?.requests.milliCpu).toBe(milliCpu);
  });

  test.each([
    [2, 2],
    [512, 500],
  ])('the CPU request after a resize to %i shares is %i milliCPU', (shares, milliCpu) => {
    const desired = asking({ shares: cpuShares(shares) });
    expect(amountsAfter(state(1024, { milliCpu: 1000 }), desired)[0]?.requests.milliCpu).toBe(milliCpu);
    expect(amountsNow(state(1024, { milliCpu: 1000 }), desired)[0]?.requests.milliCpu).toBe(1000);
  });
});

test('the minimum of shares means no CPU request if none is declared, as kubelet writes it', () => {
  const desired = asking({ shares: cpuShares(2) });
  expect(amountsAfter(state(512, {}), desired)[0]?.requests.milliCpu).toBeUndefined();
  expect(requestOfShares(cpuShares(2), undefined)).toBeUndefined();
});

describe('the memory request', () => {
  test('the memory request is that of the resize, of an earlier resize, or the declared one', () => {
    const requests = { memory: bytes(100) };
    const [earlier, now] = [200, 300].map((size) => ({ containers: { app: bytes(size) } }));
    const of = (desired: DesiredPod): unknown => amountsAfter(state(2, requests), desired)[0]?.requests.memory;
    expect(of(nothing)).toBe(100);
    expect(of(asking({}, { earlierMemoryRequests: earlier! }))).toBe(200);
    expect(of(asking({}, { earlierMemoryRequests: earlier!, memoryRequests: now! }))).toBe(300);
    expect(amountsNow(state(2, requests), asking({}, { memoryRequests: now! }))[0]?.requests.memory).toBe(100);
  });
});

test.each<
  [number | undefined, Amounts | undefined, DesiredPod, { readonly memory: boolean; readonly milliCpu: boolean }]
>([
  [undefined, undefined, nothing, { memory: false, milliCpu: false }],
  [undefined, {}, nothing, { memory: true, milliCpu: true }],
  [2, undefined, nothing, { memory: false, milliCpu: true }],
  [undefined, undefined, asking({ shares: cpuShares(2) }), { memory: false, milliCpu: true }],
  [
    undefined,
    undefined,
    asking({}, { memoryRequests: { containers: { app: bytes(1) } } }),
    { memory: true, milliCpu: false },
  ],
])(
  'with shares %j and declared requests %j, the amounts report which requests are known',
  (shares, requests, desired, knows) => {
    expect(amountsAfter(state(shares, requests), desired)[0]?.knows).toEqual(knows);
  },
);

describe('the limits', () => {
  const quota = (value: number | 'max') => ({
    quota: value === 'max' ? value : microseconds(value),
    period: microseconds(100_000),
  });
  test('the limits of a container are those of the kernel, changed by the resize', () => {
    const now = state(2, {});
    const of = (desired: DesiredPod): unknown => amountsAfter(now, desired)[0]?.limits;
    expect(of(nothing)).toEqual({ memory: 8192, milliCpu: 200 });
    expect(of(asking({ memory: bytes(4096) }))).toEqual({ memory: 4096, milliCpu: 200 });
    expect(of(asking({ cpu: quota(30_000) }))).toEqual({ memory: 8192, milliCpu: 300 });
    expect(of(asking({ memory: 'max', cpu: quota('max') }))).toEqual({});
  });

  test('the limits of a container that is not running or was never created are the declared ones', () => {
    expect(amountsNow(state(undefined, {}), nothing)[0]?.limits).toEqual({ memory: 4096 });
    const { declared, ...others } = state(2, {});
    const [{ id, ...absent }] = declared!.containers as [DeclaredContainer];
    expect(id).toBe('id');
    const now = { ...others, declared: { ...declared!, containers: [absent] } };
    expect(amountsNow(now, nothing)[0]?.limits).toEqual({ memory: 4096 });
    const { limits, ...unknown } = absent;
    expect(limits).toEqual({ memory: 4096 });
    expect(amountsNow({ ...now, declared: { ...declared!, containers: [unknown] } }, nothing)[0]?.limits).toEqual({});
  });
});

test('a container that does not count toward the pod limit is left out, and an undeclared pod has no amounts', () => {
  expect(amountsNow(state(2, {}, { isUncounted: true }), nothing)).toEqual([]);
  expect(amountsNow(state(2, {}, { isUncounted: false }), nothing)).toHaveLength(1);
  const { declared, ...others } = state(2, {});
  expect(declared).toBeDefined();
  expect(amountsNow(others, nothing)).toEqual([]);
});

const entry = (memory: number, milliCpu: number): PodEntry => {
  const requests: EntryLimits = { memory: bytes(memory), milliCpu };
  return {
    containers: new Map(),
    pod: undefined,
    requests: { containers: new Map([['app', requests]]), pod: undefined },
    isComplete: true,
  };
};

test('a lower request of one of several pods frees requests', () => {
  const of = (b: PodEntry): Map<string, PodEntry> => new Map(Object.entries({ a: entry(1, 1), b, c: entry(1, 1) }));
  expect(areRequestsFreed(of(entry(100, 200)), of(entry(99, 200)))).toBe(true);
  expect(areRequestsFreed(of(entry(100, 200)), of(entry(100, 200)))).toBe(false);
});

test.each<[string, Readonly<Record<string, PodEntry>>, boolean]>([
  ['the same', { a: entry(100, 200) }, false],
  ['one more pod', { a: entry(100, 200), b: entry(1, 1) }, false],
  ['higher memory request', { a: entry(101, 200) }, false],
  ['a removed pod', {}, true],
  ['lower memory request', { a: entry(99, 300) }, true],
  ['lower CPU request', { a: entry(100, 199) }, true],
])('a change of admitted requests (%s) frees requests: %s', (_, after, freed) => {
  expect(areRequestsFreed(new Map([['a', entry(100, 200)]]), new Map(Object.entries(after)))).toBe(freed);
});

const NO_CPU = { quota: 'max', period: PERIOD } as const;

/** A pod with these pod-level requests, 100 bytes and 50m of overhead, and a container of 1000 bytes and 200m. */
const pod = (requests = {}): PodState => ({
  memory: 'max',
  cpu: NO_CPU,
  weight: undefined,
  overhead: { memory: bytes(100), cpu: { quota: microseconds(5000), period: PERIOD } },
  containers: [],
  volumes: [],
  declared: {
    source: 'spec',
    containers: [{ name: 'a', kind: 'app', state: 'ended', requests: { memory: bytes(1000), milliCpu: 200 } }],
    requests,
    volumes: new Map(),
  },
});
const asked = (memory?: number, milliCpu?: number, earlier?: number): DesiredPod => ({
  pod: milliCpu === undefined ? {} : { shares: milliCpuToShares(milliCpu) },
  containers: new Map(),
  volumes: new Map(),
  memoryRequests: { ...(memory !== undefined && { pod: bytes(memory) }), containers: {} },
  ...(earlier !== undefined && { earlierMemoryRequests: { pod: bytes(earlier), containers: {} } }),
});
const level = { memory: bytes(2000), milliCpu: 400 };

test.each<[string, PodState, DesiredPod, { memory: number; milliCpu: number }]>([
  ['the sum of the containers and the overhead', pod(), asked(), { memory: 1100, milliCpu: 250 }],
  ['declared for the pod, and the overhead', pod(level), asked(), { memory: 2100, milliCpu: 450 }],
  ['those of a resize of the pod, overhead included', pod(level), asked(3000, 600), { memory: 3000, milliCpu: 600 }],
  ['those of an earlier resize of the pod', pod(), asked(undefined, undefined, 3000), { memory: 3000, milliCpu: 250 }],
  ['at least the overhead', pod(), asked(50, 20), { memory: 100, milliCpu: 50 }],
])('the requests of a pod after a resize are %s', (_, state, desired, requests) => {
  expect(requestsAfter(state, desired)).toEqual(requests);
});

test('a resize of a pod to its present requests, overhead included, changes nothing', () => {
  expect(requestsAfter(pod(level), asked(2100, 450))).toEqual(requestsNow(pod(level), asked(2100, 450)));
});
