import { describe, expect, test } from 'vitest';
import { type Bytes, bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { assertQosClassStays, computeQosClass } from '../../../src/sandbox/admission/qos-class.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, DeclaredContainer, DeclaredPod, QosClass } from '../../../src/sandbox/pods/declared-pod.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

const cpu = (milli: number) => ({ quota: microseconds(milli * 100), period: microseconds(100_000) });
const amounts = (memory: number, milliCpu: number): Amounts => ({
  ...(memory > 0 && { memory: mi(memory) }),
  ...(milliCpu > 0 && { milliCpu }),
});
const pod = { metadata: { uid: 'u', namespace: 'default', name: 'web' } } as PodDescription;

/** Limits and requests of one container: memory in MiB, CPU in thousandths. */
interface Values {
  readonly limits: Amounts;
  readonly requests?: Amounts;
  /** Undefined if the container does not run. */
  readonly shares?: number;
}

function state(qosClass: QosClass, containers: readonly Values[], more: Partial<DeclaredPod> = {}): PodState {
  const declared = containers.map(
    ({ limits, requests, shares }, index): DeclaredContainer => ({
      name: `c${index}`,
      kind: 'app',
      state: shares === undefined ? 'declared' : 'running',
      limits,
      ...(shares !== undefined && { id: String(index) }),
      ...(requests && { requests }),
    }),
  );
  return {
    memory: 'max',
    cpu: cpu(1000),
    weight: undefined,
    overhead: { memory: bytes(0), cpu: cpu(0) },
    containers: containers.flatMap(({ limits, shares }, index) =>
      shares === undefined
        ? []
        : [
            {
              id: String(index),
              memory: limits.memory ?? ('max' as const),
              cpu: limits.milliCpu === undefined ? { ...cpu(0), quota: 'max' as const } : cpu(limits.milliCpu),
              shares: milliCpuToShares(shares),
            },
          ],
    ),
    volumes: [],
    declared: { source: 'spec', containers: declared, qosClass, volumes: new Map(), ...more },
  };
}

interface Wanted {
  readonly limits?: { readonly memory?: Bytes | 'max'; readonly cpu?: ReturnType<typeof cpu> };
  readonly cpuRequest?: number;
  readonly memoryRequest?: number;
}

const desired = (containers: Readonly<Record<string, Wanted>>, more: Partial<DesiredPod> = {}): DesiredPod => ({
  pod: {},
  containers: new Map(
    Object.entries(containers).map(([name, { limits, cpuRequest }]) => [
      name,
      { ...limits, ...(cpuRequest !== undefined && { shares: milliCpuToShares(cpuRequest) }) },
    ]),
  ),
  volumes: new Map(),
  memoryRequests: {
    containers: Object.fromEntries(
      Object.entries(containers).flatMap(([name, { memoryRequest }]) =>
        memoryRequest === undefined ? [] : [[name, mi(memoryRequest)]],
      ),
    ),
  },
  ...more,
});

const check = (now: PodState, wanted: DesiredPod) => () => assertQosClassStays(pod, now, wanted);

/** Pod-level values of a Guaranteed pod. */
const whole = { limits: amounts(400, 1000), requests: amounts(400, 1000) };
const RULES: Readonly<Record<QosClass, string>> = {
  Guaranteed: 'each container keeps limits of CPU and memory that are equal to its requests',
  Burstable: 'its containers keep a request or a limit, and not all limits may be equal to their requests',
  BestEffort: 'its containers get no requests and no limits',
};
const equal: Values = { limits: amounts(100, 500), requests: amounts(100, 500), shares: 500 };
const half: Values = { limits: amounts(100, 500), requests: amounts(50, 250), shares: 250 };
/** The runtime uses 2 shares for each request of up to 2 thousandths. */
const tiny: Values = { limits: amounts(100, 1), requests: amounts(100, 1), shares: 1 };
const nothing: Values = { limits: {}, requests: {}, shares: 0 };

test.each<[string, readonly [Amounts, Amounts][], QosClass]>([
  ['nothing', [[{}, {}]], 'BestEffort'],
  ['a request alone', [[{}, amounts(0, 100)]], 'Burstable'],
  ['a limit alone', [[amounts(100, 0), {}]], 'Burstable'],
  ['limits equal to requests', [[amounts(100, 500), amounts(100, 500)]], 'Guaranteed'],
  ['memory only', [[amounts(100, 0), amounts(100, 0)]], 'Burstable'],
  [
    'one container without values',
    [
      [amounts(100, 500), amounts(100, 500)],
      [{}, {}],
    ],
    'Burstable',
  ],
  ['less requested than the limit', [[amounts(100, 500), amounts(100, 499)]], 'Burstable'],
])('computeQosClass returns the class of a pod with %s', (_, all, qosClass) => {
  expect(computeQosClass(all.map(([limits, requests]) => ({ limits, requests })))).toBe(qosClass);
});

describe('a resize', () => {
  test.each<[QosClass, QosClass, string, readonly Values[], DesiredPod]>([
    ['Guaranteed', 'Burstable', 'a limit alone', [equal], desired({ c0: { limits: { memory: mi(200) } } })],
    ['Guaranteed', 'Burstable', 'a request alone', [equal], desired({ c0: { cpuRequest: 400 } })],
    ['Guaranteed', 'Burstable', 'the least request', [equal], desired({ c0: { cpuRequest: 1 } })],
    ['Guaranteed', 'Burstable', 'a limit removed', [equal, equal], desired({ c1: { limits: { memory: 'max' } } })],
    [
      'Burstable',
      'Guaranteed',
      'requests raised to the limits',
      [half],
      desired({ c0: { cpuRequest: 500, memoryRequest: 100 } }),
    ],
    [
      'Burstable',
      'BestEffort',
      'the only limit removed',
      [{ ...nothing, limits: amounts(100, 0) }],
      desired({ c0: { limits: { memory: 'max' } } }),
    ],
    ['BestEffort', 'Burstable', 'a limit', [nothing], desired({ c0: { limits: { memory: mi(64) } } })],
    ['BestEffort', 'Burstable', 'a CPU request', [nothing, nothing], desired({ c1: { cpuRequest: 100 } })],
    ['BestEffort', 'Burstable', 'a memory request', [nothing], desired({ c0: { memoryRequest: 1 } })],
  ])(
    'KEP-1287: a resize that would change the QoS class from %s to %s is rejected: %s',
    (from, to, _, containers, wanted) => {
      let thrown: unknown;
      try {
        check(state(from, containers), wanted)();
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toMatchObject({
        code: 9,
        reason: 'QOS_CLASS_CHANGES',
        message: expect.stringContaining(
          `pod default/web: the resize would change the QoS class from ${from} to ${to}: `,
        ) as string,
        context: { pod: 'u', asked: to, found: from },
      });
    },
  );

  test.each<[string, QosClass, readonly Values[], DesiredPod]>([
    [
      'limits and requests together',
      'Guaranteed',
      [equal, equal],
      desired({ c0: { limits: { memory: mi(200), cpu: cpu(700) }, memoryRequest: 200, cpuRequest: 700 } }),
    ],
    [
      'the present values again',
      'Guaranteed',
      [equal],
      desired({ c0: { limits: { memory: mi(100) }, cpuRequest: 500 } }),
    ],
    [
      'a limit of another container next to one with the least request',
      'Guaranteed',
      [{ limits: amounts(100, 500), requests: amounts(100, 500), shares: 500 }, tiny],
      desired({ c0: { limits: { memory: mi(200) }, memoryRequest: 200 } }),
    ],
    ['a limit of a Burstable pod', 'Burstable', [half], desired({ c0: { limits: { memory: mi(200) } } })],
    [
      'the minimum of shares for a container without a request',
      'BestEffort',
      [nothing],
      desired({ c0: { cpuRequest: 0 } }),
    ],
    ['no limit for a container without one', 'BestEffort', [nothing], desired({ c0: { limits: { memory: 'max' } } })],
    [
      'a limit, where the memory request is not known',
      'Guaranteed',
      [{ limits: amounts(100, 500), shares: 500 }],
      desired({ c0: { limits: { memory: mi(200) } } }),
    ],
    [
      'a limit of a pod whose values do not match its class',
      'Guaranteed',
      [half],
      desired({ c0: { limits: { memory: 'max' } } }),
    ],
    [
      'the completion of an earlier resize',
      'Guaranteed',
      [{ limits: amounts(200, 500), requests: amounts(100, 500), shares: 500 }],
      desired(
        { c0: { limits: { memory: mi(300) }, memoryRequest: 300 } },
        { earlierMemoryRequests: { containers: { c0: mi(200) } } },
      ),
    ],
  ])('a resize keeps the QoS class: %s', (_, qosClass, containers, wanted) => {
    expect(check(state(qosClass, containers), wanted)).not.toThrow();
  });

  test('a limit rounded to whole pages counts as the request that it was rounded from', () => {
    const decimal = (amount: number): Amounts => ({ memory: bytes(amount), milliCpu: 500 });
    const now = state('Guaranteed', [{ limits: decimal(99_999_744), requests: decimal(100_000_000), shares: 500 }]);
    const limit = { memory: bytes(200_000_000) };
    expect(check(now, desired({ c0: { limits: limit } }))).toThrow(/Guaranteed to Burstable/);
    const both = desired({ c0: { limits: limit } }, { memoryRequests: { containers: { c0: bytes(200_000_000) } } });
    expect(check(now, both)).not.toThrow();
  });

  test('a container that is not running counts for the QoS class with its declared values', () => {
    const stopped = { limits: amounts(100, 500), requests: amounts(100, 500) };
    const wanted = desired({ c1: { limits: { memory: mi(200) } } });
    expect(check(state('Guaranteed', [equal, stopped]), wanted)).toThrow(/Guaranteed to Burstable/);
  });

  test('KEP-1287: a resize is not rejected as Guaranteed if a container with unknown values can keep the pod Burstable', () => {
    const now = state('Burstable', [half]);
    const hidden: DeclaredContainer = { name: 'init', kind: 'unknown', state: 'ended', isUncounted: true };
    const containers = [...now.declared!.containers, hidden];
    const wanted = desired({ c0: { cpuRequest: 500, memoryRequest: 100 } });
    expect(check({ ...now, declared: { ...now.declared!, containers } }, wanted)).not.toThrow();
    expect(check(now, wanted)).toThrow(/Burstable to Guaranteed/);
    const bestEffort = state('BestEffort', [nothing]).declared!;
    const declared = { ...bestEffort, containers: [...bestEffort.containers, hidden] };
    expect(check({ ...now, containers: [], declared }, desired({ c0: { cpuRequest: 100 } }))).toThrow(/to Burstable/);
  });

  test('pod-level values determine the QoS class instead of the values of the containers', () => {
    const level = { limits: amounts(400, 1000), requests: amounts(400, 1000) };
    const now = state('Guaranteed', [half], level);
    expect(check(now, desired({ c0: { limits: { memory: mi(200) } } }))).not.toThrow();
    expect(check(now, desired({}, { pod: { memory: mi(500) } }))).toThrow(/Guaranteed to Burstable/);
    const both = desired({}, { pod: { memory: mi(500) }, memoryRequests: { pod: mi(500), containers: {} } });
    expect(check(now, both)).not.toThrow();
  });

  test.each<[string, Partial<DeclaredPod>, Parameters<typeof desired>[1], QosClass, QosClass]>([
    ['a CPU limit removed', whole, { pod: { cpu: { ...cpu(0), quota: 'max' } } }, 'Guaranteed', 'Burstable'],
    ['a CPU request', whole, { pod: { shares: milliCpuToShares(900) } }, 'Guaranteed', 'Burstable'],
    ['a memory request', whole, { memoryRequests: { pod: mi(300), containers: {} } }, 'Guaranteed', 'Burstable'],
    [
      'requests raised to the limits',
      { limits: whole.limits, requests: amounts(400, 500) },
      { pod: { shares: milliCpuToShares(1000) } },
      'Burstable',
      'Guaranteed',
    ],
    ['the only limit removed', { limits: amounts(400, 0) }, { pod: { memory: 'max' } }, 'Burstable', 'BestEffort'],
    [
      'a CPU limit in addition to a memory limit',
      { limits: amounts(400, 0), requests: amounts(400, 1000) },
      { pod: { cpu: cpu(1000) } },
      'Burstable',
      'Guaranteed',
    ],
  ])('a resize of pod-level values that would change the QoS class is rejected: %s', (_, level, more, from, to) => {
    const check = () => assertQosClassStays(pod, state(from, [half], level), desired({}, more));
    expect(check).toThrow(`the resize would change the QoS class from ${from} to ${to}: ${RULES[from]}`);
  });

  test('a resize of a container does not change a QoS class that pod-level values of one resource determine', () => {
    const now = state('Burstable', [half], { requests: amounts(0, 500) });
    expect(check(now, desired({ c0: { cpuRequest: 500, memoryRequest: 100 } }))).not.toThrow();
    expect(
      check(
        state('Burstable', [half], { limits: amounts(300, 0) }),
        desired({ c0: { cpuRequest: 500, memoryRequest: 100 } }),
      ),
    ).not.toThrow();
  });

  test('unknown requests of a Burstable pod do not count as equal to the limits', () => {
    const now = state('Burstable', [{ limits: amounts(100, 500), shares: 500 }]);
    expect(check(now, desired({ c0: { limits: { memory: mi(200) } } }))).not.toThrow();
  });

  test('a resize is not rejected if the QoS class is unknown', () => {
    const { declared, ...others } = state('Guaranteed', [equal]);
    expect(check(others, desired({ c0: { cpuRequest: 1 } }))).not.toThrow();
    expect(declared?.qosClass).toBe('Guaranteed');
  });
});
