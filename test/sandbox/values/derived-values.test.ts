import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Bytes, Limit } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { Amounts, DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { Limits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { derivedPodShares, withInheritedLimits } from '../../../src/sandbox/values/derived-values.ts';
import type { FakeRuntime } from '../../support/fake-runtime.ts';
import { containerId, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { cpu, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

const NO_CPU = { quota: 'max' as const, period: microseconds(100_000) };

describe('CPU shares of a pod', () => {
  const ENDED = 'e'.repeat(64);
  const linux = { memory_limit_in_bytes: BigInt(100 * MiB), cpu_shares: 512n };

  let web: ResizedPod;
  let runtime: FakeRuntime;

  beforeEach(async () => {
    web = await ResizedPod.start();
    ({ runtime } = web);
    web.make(String(200 * MiB), [100 * MiB]);
    runtime.describeContainer(containerId(0), { metadata: { name: 'c0' }, state: 1, resources: { linux } }, 100);
    // 1024 shares.
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '39');
  });

  afterEach(() => web.close());

  /** Adds a container that has ended. */
  function addEnded(exitCode: number): void {
    runtime.node.registry.learnContainer({ containerId: ENDED, sandboxId: SANDBOX, name: 'b' });
    runtime.describeContainer(
      ENDED,
      { metadata: { name: 'b' }, state: 2, exit_code: exitCode, resources: { linux } },
      0,
    );
    const listed = [
      { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 1n },
      { id: ENDED, metadata: { name: 'b' }, state: 2, created_at: 2n },
    ];
    runtime.on('ListContainers', () => encode('ListContainersResponse', { containers: listed }));
  }

  test('the shares of a pod include the stored shares of a container that restarts', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('98');
  });

  test('the shares of a pod include the request that kubelet has admitted for a container that does not run', async () => {
    addEnded(1);
    const requests = { containers: new Map([['b', { milliCpu: 500 }]]), pod: undefined };
    const containers = new Map([
      ['c0', {}],
      ['b', {}],
    ]);
    runtime.allocated.set('uid-1', { containers, pod: undefined, requests, isComplete: true });
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('98');
  });

  test('the shares of a pod include the shares that the same request sets for a container that does not run', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) }, b: { shares: cpuShares(1024) } }));
    // 3072 shares.
    expect(runtime.read('cpu.weight')).toBe('118');
  });

  test('the shares of a pod change if a request only sets shares of a container that does not run', async () => {
    addEnded(1);
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('79');
  });

  test('the shares of a pod exclude a container that has ended with exit code 0', async () => {
    addEnded(0);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '20');
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('20');
  });

  test.each([
    ['alone', [], 51, 81],
    ['after a sidecar', ['proxy'], 153, 183],
  ] as const)(
    'KEP-1287: the shares of a pod follow a running init container %s that requests as much as the app containers',
    async (_, sidecars, now, then) => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const none = { memory: 'max', cpu: NO_CPU } as const;
      const live = [...sidecars.map((id) => ({ id, shares: cpuShares(102) })), { id: 'setup', shares: cpuShares(51) }];
      const declared = [
        ...sidecars.map((name) => ({ name, id: name, kind: 'sidecar', state: 'running' }) as const),
        { name: 'setup', id: 'setup', kind: 'init', state: 'running' },
        { name: 'app', kind: 'app', state: 'declared', requests: { milliCpu: 50 } },
      ] as const;
      const state: PodState = {
        ...{ memory: 'max', cpu: NO_CPU, weight: undefined, overhead: { memory: bytes(0), cpu: NO_CPU }, volumes: [] },
        containers: live.map((container) => ({ ...container, ...none })),
        declared: { source: 'spec', containers: declared, volumes: new Map() },
      };
      const derived = (shares: number) =>
        derivedPodShares({ ...pod, cpuShares: cpuShares(now) }, state, [{ id: 'setup', shares: cpuShares(shares) }]);
      expect([derived(81), derived(20)]).toEqual([{ now, then }, undefined]);
    },
  );

  test('the shares of a pod stay if they are not the sum of its containers', async () => {
    addEnded(1);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '70');
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('70');
  });
});

describe('inherited limits', () => {
  const cpu = (milli: number, period = 100_000) => ({
    quota: microseconds((milli * period) / 1000),
    period: microseconds(period),
  });

  interface Given {
    readonly memory?: Limit<Bytes>;
    readonly cpu?: PodState['cpu'];
    readonly own?: Amounts;
    readonly more?: Partial<DeclaredContainer>;
  }

  /** A pod of 128 MiB and 500m with pod-level limits of the same, with these containers. */
  function state(containers: Readonly<Record<string, Given>>, more: Partial<PodState> = {}, level?: Amounts): PodState {
    const all = Object.entries(containers);
    return {
      memory: mi(128),
      cpu: cpu(500),
      weight: undefined,
      overhead: { memory: bytes(0), cpu: cpu(0) },
      containers: all.map(([name, { memory = mi(128), cpu: limit = cpu(500) }]) => ({
        id: `id-${name}`,
        memory,
        cpu: limit,
      })),
      volumes: [],
      declared: {
        source: 'spec',
        containers: all.map(([name, { own = {}, more: others = {} }]) => ({
          name,
          kind: 'app',
          state: 'running',
          id: `id-${name}`,
          limits: own,
          ...others,
        })),
        limits: level ?? { memory: mi(128), milliCpu: 500 },
        volumes: new Map(),
      },
      ...more,
    };
  }

  const asking = (pod: Limits, containers: Readonly<Record<string, Limits>> = {}): DesiredPod => ({
    pod,
    containers: new Map(Object.entries(containers)),
    volumes: new Map(),
  });
  const limitsAfter = (now: PodState, desired: DesiredPod): object =>
    Object.fromEntries(withInheritedLimits(now, desired).containers);

  const both = { memory: mi(256), cpu: cpu(700) };

  describe('a container without limits of its own', () => {
    test('a container without limits inherits the new limits of the pod, per changed resource', () => {
      expect(limitsAfter(state({ a: {} }), asking(both))).toEqual({ a: both });
      expect(limitsAfter(state({ a: {} }), asking({ memory: mi(64) }))).toEqual({ a: { memory: mi(64) } });
      expect(limitsAfter(state({ a: {} }), asking({ cpu: cpu(300) }))).toEqual({ a: { cpu: cpu(300) } });
      expect(limitsAfter(state({ a: {} }), asking({ memory: 'max', cpu: NO_CPU }))).toEqual({
        a: { memory: 'max', cpu: NO_CPU },
      });
    });

    test('a container without limits inherits the pod limits minus the overhead of the pod', () => {
      const overhead = { memory: mi(28), cpu: cpu(100) };
      const now = state({ a: { memory: mi(100), cpu: cpu(400) } }, { overhead }, { memory: mi(90), milliCpu: 300 });
      expect(limitsAfter(now, asking(both))).toEqual({ a: { memory: mi(228), cpu: cpu(600) } });
      expect(limitsAfter(now, asking({ memory: mi(1), cpu: cpu(50) }))).toEqual({
        a: { memory: bytes(4096), cpu: { quota: 1000, period: 100_000 } },
      });
      const unlimited = { ...now, overhead: { memory: mi(28), cpu: NO_CPU }, cpu: NO_CPU };
      const without = { ...unlimited, containers: unlimited.containers.map((one) => ({ ...one, cpu: NO_CPU })) };
      expect(limitsAfter(without, asking({ cpu: cpu(600) }))).toEqual({ a: { cpu: cpu(600) } });
    });

    test('a container without limits inherits the pod limits after the pod was resized above its declared limits', () => {
      const now = state({ a: { memory: mi(192), cpu: cpu(800, 50_000) } }, { memory: mi(192), cpu: cpu(800) });
      expect(limitsAfter(now, asking(both))).toEqual({ a: both });
    });

    test('a container without limits inherits the pod limits while kubelet has resized only the pod', () => {
      expect(limitsAfter(state({ a: {} }, { memory: mi(192), cpu: cpu(800) }), asking(both))).toEqual({ a: both });
    });

    test('a container without limits inherits the pod limits if the kernel or systemd has rounded a limit', () => {
      const odd = bytes(mi(128) + 100);
      expect(limitsAfter(state({ a: {} }, { memory: odd }, { memory: odd }), asking({ memory: mi(256) }))).toEqual({
        a: { memory: mi(256) },
      });
      const rounded = state({ a: { cpu: cpu(125) } }, { cpu: cpu(130) }, { milliCpu: 128 });
      expect(limitsAfter(rounded, asking({ cpu: cpu(300) }))).toEqual({});
      expect(limitsAfter({ ...rounded, inPercents: true }, asking({ cpu: cpu(300) }))).toEqual({
        a: { cpu: cpu(300) },
      });
      const far = {
        ...rounded,
        inPercents: true as const,
        cpu: cpu(200),
        containers: [{ id: 'id-a', memory: mi(128), cpu: cpu(117) }],
      };
      expect(limitsAfter(far, asking({ cpu: cpu(300) }))).toEqual({});
    });

    test('a container without limits gets the value of the request instead of the pod limit', () => {
      const now = state({ a: {}, b: {} });
      const asked = asking(both, { a: { memory: mi(32) } });
      expect(limitsAfter(now, asked)).toEqual({ a: { memory: mi(32), cpu: both.cpu }, b: both });
    });

    test('a container without limits keeps a different limit that another program has set', () => {
      expect(limitsAfter(state({ a: { memory: mi(50), cpu: cpu(499) } }), asking(both))).toEqual({});
      expect(limitsAfter(state({ a: { memory: 'max', cpu: NO_CPU } }), asking(both))).toEqual({});
    });

    test.each<[string, Partial<DeclaredContainer>]>([
      ['is an ephemeral container', { kind: 'ephemeral' }],
      ['is an init container that kubelet does not resize', { kind: 'init', isFixed: true }],
      ['does not run', { id: 'another' }],
      ['was not created', { id: undefined }],
    ] as [string, Partial<DeclaredContainer>][])('a container keeps its limits if it %s', (_, more) => {
      expect(limitsAfter(state({ a: { more } }), asking(both))).toEqual({});
    });

    test('a container keeps its limits if its declared limits are unknown', () => {
      const { declared, ...others } = state({ a: {} });
      const [{ limits, ...unknown }] = declared!.containers as [DeclaredContainer];
      expect(limits).toEqual({});
      expect(limitsAfter({ ...others, declared: { ...declared!, containers: [unknown] } }, asking(both))).toEqual({});
      expect(limitsAfter(others, asking(both))).toEqual({});
    });
  });

  test('a container keeps its own limit of one resource, and inherits the other one', () => {
    expect(limitsAfter(state({ a: { own: { memory: mi(128) } } }), asking(both))).toEqual({ a: { cpu: both.cpu } });
    expect(limitsAfter(state({ a: { own: { milliCpu: 500 } } }), asking(both))).toEqual({ a: { memory: both.memory } });
  });

  test('a container inherits the limits of a pod that has pod-level resources, and of no other pod', () => {
    const now = (level: Amounts): PodState => state({ a: {} }, {}, level);
    expect(limitsAfter(now({}), asking(both))).toEqual({});
    expect(limitsAfter(now({ memory: mi(128) }), asking({ memory: both.memory }))).toEqual({
      a: { memory: both.memory },
    });
    // The other limit is added to the pod-level resources.
    expect(limitsAfter(now({ milliCpu: 500 }), asking(both))).toEqual({ a: both });
    const { declared, ...others } = now({});
    const { limits, ...without } = declared!;
    expect(limits).toEqual({});
    expect(limitsAfter({ ...others, declared: without }, asking(both))).toEqual({});
  });

  test('a request that does not change the pod limits is returned unchanged', () => {
    const desired = asking({}, { a: { memory: mi(1) } });
    expect(withInheritedLimits(state({ a: {} }), desired)).toBe(desired);
  });
});
