import { describe, expect, test } from 'vitest';
import { bytes, cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { amountsAfter, amountsNow, requestOfShares } from '../../../src/sandbox/admission/pod-requests.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { Limits, PodState } from '../../../src/sandbox/pods/pod-state.ts';

/** The limits and requests of one container, which the runtime has with these shares (undefined: it does not run). */
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
    ['is what the runtime has as shares', 512, { milliCpu: 100 }, 500],
    ['is the declared one of a container that does not run', undefined, { milliCpu: 100 }, 100],
    ['is the declared one if the runtime has no shares', 0, { milliCpu: 100 }, 100],
    ['is none if the runtime has the minimum and nothing is declared', 2, {}, undefined],
    ['is not known if the runtime has the minimum and nothing else is known', 2, undefined, undefined],
    ['is the declared one if that leads to the minimum', 2, { milliCpu: 1 }, 1],
    ['is the largest that leads to the minimum if more is declared', 2, { milliCpu: 500 }, 2],
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
