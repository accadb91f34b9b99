import { describe, expect, test } from 'vitest';
import { type WeightFormula, weightOfShares } from '../../../src/cgroups/values/conversions.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import type { ContainerDescription } from '../../../src/runtime/description.ts';
import { assertLimitsFit, assertRequestsFit } from '../../../src/sandbox/admission/request-order.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { Limits, LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';

const period = microseconds(100_000);
const cpu = (quota: number | 'max') => ({ quota: quota === 'max' ? quota : microseconds(quota), period });
const NO_CPU = cpu('max');

/** A pod of 2000 bytes and half a CPU; c0 runs with 1000 bytes and 0.2 CPU, c1 with neither limit. */
const after: PodState = {
  memory: bytes(2000),
  cpu: cpu(50_000),
  weight: undefined,
  overhead: { memory: bytes(0), cpu: cpu(0) },
  containers: [
    { id: 'i0', memory: bytes(1000), cpu: cpu(20_000) },
    { id: 'i1', memory: 'max', cpu: NO_CPU },
  ],
  volumes: [],
};
const stored = { memory_limit_in_bytes: 500n, cpu_quota: 10_000n, cpu_period: 100_000n, unified: {} };
const described = new Map<string, ContainerDescription>(
  Object.entries({
    c0: { containerId: 'i0' },
    c1: { containerId: 'i1' },
    ended: { containerId: 'i2', resources: stored },
    stopped: { containerId: 'i4', resources: { ...stored, cpu_quota: 0n, cpu_shares: 153n } },
    unknown: { containerId: 'i3' },
  }) as unknown as [string, ContainerDescription][],
);

interface Asked {
  readonly pod?: Limits;
  readonly containers?: Readonly<Record<string, Limits>>;
  readonly podRequest?: number;
  /** The memory request of the pod, overhead included, that an earlier resize has set. */
  readonly earlier?: number;
  readonly requests?: Readonly<Record<string, number>>;
}
const check =
  ({ pod = {}, containers = {}, podRequest, requests = {} }: Asked) =>
  () => {
    const desired: DesiredPod = {
      pod,
      containers: new Map(Object.entries(containers)),
      volumes: new Map(),
      memoryRequests: {
        ...(podRequest !== undefined && { pod: bytes(podRequest) }),
        containers: Object.fromEntries(Object.entries(requests).map(([name, size]) => [name, bytes(size)])),
      },
    };
    assertRequestsFit(desired, after, described);
  };
const shares = (milli: number): Limits => ({ shares: milliCpuToShares(milli) });

describe('a request above a limit that stays', () => {
  test.each<[string, Asked, string, string, string]>([
    [
      'memory of a container',
      { containers: { c0: {} }, requests: { c0: 1001 } },
      'containers["c0"].requests.memory',
      '1001',
      '1000',
    ],
    ['CPU of a container', { containers: { c0: shares(201) } }, 'containers["c0"].requests.cpu', '201m', '200m'],
    ['memory of the pod', { podRequest: 2001 }, 'resources.requests.memory', '2001', '2000'],
    ['CPU of the pod', { pod: shares(501) }, 'resources.requests.cpu', '501m', '500m'],
    [
      'memory of a container that does not run',
      { containers: { ended: {} }, requests: { ended: 501 } },
      'containers["ended"].requests.memory',
      '501',
      '500',
    ],
    [
      'CPU of a container that does not run',
      { containers: { ended: shares(101) } },
      'containers["ended"].requests.cpu',
      '101m',
      '100m',
    ],
  ])('a request above a limit that stays is rejected: %s', (_, asked, field, value, limit) => {
    expect(check(asked)).toThrow(`${field}: "${value}": the request is above the limit, ${limit}`);
  });
});

test.each<[string, Asked]>([
  ['no request', { pod: {}, containers: { c0: {} } }],
  [
    'a request equal to the limit',
    { pod: shares(500), containers: { c0: shares(200) }, requests: { c0: 1000 }, podRequest: 2000 },
  ],
  [
    'a request with a new limit',
    { containers: { c0: { memory: bytes(4096), cpu: cpu(90_000), ...shares(900) } }, requests: { c0: 4096 } },
  ],
  ['a request without a limit', { containers: { c1: shares(900) }, requests: { c1: 1e9 } }],
  [
    'a request of a container with unknown limits',
    { containers: { unknown: shares(900) }, requests: { unknown: 1e9 } },
  ],
  [
    'a request of a container that the runtime does not report',
    { containers: { absent: shares(900) }, requests: { absent: 1e9 } },
  ],
])('assertRequestsFit accepts %s', (_, asked) => {
  expect(check(asked)).not.toThrow();
});

describe('a limit lowered below the present request', () => {
  const requests = { memory: bytes(900), milliCpu: 150 };
  const declared = (source: 'spec' | 'kubelet-state'): PodState => ({
    ...after,
    overhead: { memory: bytes(100), cpu: cpu(5000) },
    declared: {
      source,
      containers: [
        { name: 'c0', kind: 'app', state: 'running', id: 'i0', requests },
        { name: 'c1', kind: 'app', state: 'running', id: 'i1', requests },
      ],
      requests: { memory: bytes(1500), milliCpu: 400 },
      volumes: new Map(),
    },
  });
  const lower = (
    state: PodState,
    { pod = {}, containers = {}, podRequest, earlier, requests: memory = {} }: Asked,
    stored?: number,
  ) => {
    const desired: DesiredPod = {
      pod,
      containers: new Map(Object.entries(containers)),
      volumes: new Map(),
      memoryRequests: {
        ...(podRequest !== undefined && { pod: bytes(podRequest) }),
        containers: Object.fromEntries(Object.entries(memory).map(([name, size]) => [name, bytes(size)])),
      },
      ...(earlier !== undefined && { earlierMemoryRequests: { pod: bytes(earlier), containers: {} } }),
    };
    const cpuShares = stored === undefined ? undefined : milliCpuToShares(stored);
    return () => assertLimitsFit({ cpuShares }, state, desired, described);
  };
  const cases: [string, Asked, string][] = [
    ['memory', { containers: { c0: { memory: bytes(899) } } }, 'containers["c0"].limits.memory: "899"'],
    ['CPU', { containers: { c0: { cpu: cpu(14_900) } } }, 'containers["c0"].limits.cpu: "149m"'],
    ['a limit that is new', { containers: { c1: { cpu: cpu(14_900) } } }, 'containers["c1"].limits.cpu: "149m"'],
    ['memory of the pod, overhead included', { pod: { memory: bytes(1599) } }, 'resources.limits.memory: "1599"'],
    ['CPU of the pod, overhead included', { pod: { cpu: cpu(44_900) } }, 'resources.limits.cpu: "449m"'],
  ];
  test.each(cases)(
    'KEP-1287: a limit lowered below the request in the spec or in the kubelet state is rejected: %s',
    (_, asked, message) => {
      for (const source of ['spec', 'kubelet-state'] as const)
        expect(lower(declared(source), asked)).toThrow(`${message}: the limit is below the request, `);
    },
  );

  test('a CPU limit below the request in the stored shares is rejected, for running and stopped containers', () => {
    const [running, other] = after.containers as [LiveContainer, LiveContainer];
    const state = { ...after, containers: [{ ...running, ...shares(150) }, other] };
    const message = 'limits.cpu: "149m": the limit is below the request, 150m';
    // A container is known by its name if any source declares it.
    const one = { name: 'c0', kind: 'unknown', state: 'running', id: 'i0' } as const;
    const known = { ...state, declared: { source: 'inference', containers: [one], volumes: new Map() } } as const;
    expect(lower(known, { containers: { c0: { cpu: cpu(14_900) } } })).toThrow(message);
    expect(lower(known, { containers: { c0: { cpu: cpu(15_000) } } })).not.toThrow();
    expect(lower(known, { containers: { stopped: { cpu: cpu(14_900) } } })).toThrow(message);
  });

  describe('the pod request set by an earlier resize', () => {
    test('the pod memory request of an earlier resize replaces the declared one, whether it is higher or lower', () => {
      const asked = (size: number): Asked => ({ pod: { memory: bytes(size) }, earlier: 1200 });
      expect(lower(declared('spec'), asked(1200))).not.toThrow();
      expect(lower(declared('spec'), asked(1199))).toThrow(
        'resources.limits.memory: "1199": the limit is below the request, 1200',
      );
      const raised = { pod: { memory: bytes(1700) }, earlier: 1800 };
      expect(lower(declared('spec'), raised)).toThrow('the limit is below the request, 1800');
    });

    /** A pod with the weight of this CPU request, overhead included. The declared requests are 450m. */
    const weighing = (milli: number, formula: WeightFormula = 'old'): PodState => ({
      ...declared('spec'),
      weight: weightOfShares(milliCpuToShares(milli), formula),
    });
    const limit = (milli: number): Asked => ({ pod: { cpu: cpu(milli * 100) } });

    test.each(['old', 'new'] as const)(
      'the pod CPU request of the stored shares counts if the pod has their weight by the %s formula',
      (formula) => {
        expect(lower(weighing(350, formula), limit(350), 350)).not.toThrow();
        expect(lower(weighing(350, formula), limit(349), 350)).toThrow(
          'resources.limits.cpu: "349m": the limit is below the request, 350m',
        );
        expect(lower(weighing(490, formula), limit(480), 490)).toThrow('the limit is below the request, 490m');
      },
    );

    test('the declared pod CPU request counts if kubelet has set its weight since', () => {
      expect(lower(weighing(450), limit(449), 350)).toThrow('the limit is below the request, 450m');
      expect(lower(weighing(450), limit(450), 490)).not.toThrow();
    });

    test('no pod CPU request counts if the meaning of the weight is unknown', () => {
      expect(lower(weighing(350), limit(349), 490)).not.toThrow();
      expect(lower(weighing(350), limit(349))).not.toThrow();
    });
  });

  describe('shares that kubelet derives from a pod-level CPU limit', () => {
    const withLevel = (source: 'spec' | 'kubelet-state', own: Partial<DeclaredContainer>, milli = 1000): PodState => ({
      ...after,
      cpu: cpu(100_000),
      containers: [{ id: 'i0', memory: 'max', cpu: cpu(100_000), ...shares(milli) }],
      declared: {
        source,
        containers: [{ name: 'c0', kind: 'app', state: 'running', id: 'i0', limits: {}, ...own }],
        limits: { milliCpu: 1000 },
        requests: { milliCpu: 500 },
        volumes: new Map(),
      },
    });
    /** A limit of the pod, and the same limit of the container. */
    const both = (quota: number): Asked => ({ pod: { cpu: cpu(quota) }, containers: { c0: { cpu: cpu(quota) } } });

    test.each(['spec', 'kubelet-state'] as const)(
      'a CPU limit below the derived shares is accepted down to the pod request in the %s',
      (source) => {
        const state = withLevel(source, { requests: {} });
        expect(lower(state, both(60_000))).not.toThrow();
        expect(lower(state, both(50_000))).not.toThrow();
        expect(lower(state, both(49_900))).toThrow(
          'resources.limits.cpu: "499m": the limit is below the request, 500m',
        );
        expect(lower(state, { containers: { c0: { cpu: cpu(60_000) } } })).not.toThrow();
      },
    );

    test('a CPU limit below the derived shares is accepted if requests are unknown, or for a stopped container', () => {
      expect(lower(withLevel('kubelet-state', {}), both(60_000))).not.toThrow();
      const ended = { name: 'stopped', kind: 'app', state: 'ended', id: 'i4', limits: {}, isUncounted: true } as const;
      const asked = { containers: { stopped: { cpu: cpu(14_900) } } };
      expect(lower(withLevel('spec', ended), asked)).not.toThrow();
    });

    test.each<[string, Partial<DeclaredContainer>, number]>([
      ['has a CPU request', { requests: { milliCpu: 700 } }, 700],
      ['has a CPU limit, which is its request too', { limits: { milliCpu: 700 }, requests: {} }, 700],
      ['has limits that are not known', { limits: undefined as never }, 700],
    ])('a CPU limit below the shares is rejected for a container that %s', (_, own, milli) => {
      const message = 'containers["c0"].limits.cpu: "699m": the limit is below the request, 700m';
      expect(lower(withLevel('spec', own, milli), both(69_900))).toThrow(message);
    });
  });

  test.each<[string, Asked]>([
    ['equal to the request', { containers: { c0: { memory: bytes(900), cpu: cpu(15_000) } } }],
    ['lowered together with the request', { containers: { c0: { memory: bytes(500) } }, requests: { c0: 500 } }],
    ['lowered together with the CPU request', { containers: { c0: { cpu: cpu(10_000), ...shares(100) } } }],
    ['removed', { containers: { c0: { memory: 'max', cpu: NO_CPU } }, pod: { memory: 'max', cpu: NO_CPU } }],
    ['lowered together with the request of the pod', { pod: { memory: bytes(1500) }, podRequest: 1500 }],
    ['equal to the request of the pod and the overhead', { pod: { memory: bytes(1600), cpu: cpu(45_000) } }],
  ])('a limit is not rejected as below the request if it is %s', (_, asked) => {
    expect(lower(declared('spec'), asked)).not.toThrow();
  });

  test('a limit that is raised but stays below the request is accepted, since another program has lowered it', () => {
    const [, other] = after.containers as [LiveContainer, LiveContainer];
    const low = { id: 'i0', memory: bytes(500), cpu: cpu(10_000) };
    const state = { ...declared('spec'), containers: [low, other] };
    expect(lower(state, { containers: { c0: { memory: bytes(600), cpu: cpu(12_000) } } })).not.toThrow();
  });
});
