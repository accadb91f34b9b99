import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { containerChanges, plan } from '../../../src/sandbox/plan/steps.ts';
import type { ContainerLimits, LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { setUp, setup } from '../../support/resize/kubelet-pods.ts';
import { Case, container, cpu, expectWithin, holds, pod, texts, undone } from '../../support/resize/plan-cases.ts';
import { containerChanges as changesOf, NO_VOLUMES, PERIOD, podState } from '../../support/resize/pods.ts';

test('an update of a container raises the pod before the call and lowers it after, for each resource separately', () => {
  const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
  const limits = podLimitsFor(state, [
    {
      id: 'a',
      memory: bytes(150 * MiB),
      cpu: { quota: microseconds(5000), period: PERIOD },
    },
  ]);
  expect(texts(plan(state, { ...limits, call: 'container', volumes: NO_VOLUMES }))).toEqual([
    `pod memory.max ${300 * MiB} -> ${350 * MiB}`,
    'runtime',
    'pod cpu.max 30000 100000 -> 25000 100000',
  ]);
});

test('an update of a pod writes its cgroup before it calls the runtime', () => {
  const state = { ...pod(300, 30_000, [container('a', 300, 30_000)]), volumes: [] };
  const steps = plan(state, {
    memory: bytes(200 * MiB),
    cpu: { quota: microseconds(50_000), period: PERIOD },
    unified: [
      { key: 'memory.high', from: 'max', to: '1000000' },
      { key: 'pids.max', from: '100', to: '100' },
    ],
    call: 'pod',
    volumes: NO_VOLUMES,
  });
  expect(texts(steps)).toEqual([
    'pod cpu.max 30000 100000 -> 50000 100000',
    'pod memory.high max -> 1000000',
    `pod memory.max ${300 * MiB} -> ${200 * MiB}`,
    'runtime',
  ]);
});

test.each([
  ['a lower quota', cpu(50_000), cpu(20_000), '40000 -> 20000'],
  ['a first quota', cpu('max'), cpu(20_000), '40000 -> 20000'],
  [
    'a higher rate with a shorter period',
    { quota: microseconds(60_000), period: microseconds(200_000) },
    { quota: microseconds(35_000), period: PERIOD },
    '40000 -> 35000',
  ],
])(
  'lowers the CPU burst before %s, which the kernel would reject otherwise (koordinator 2778)',
  (_, now, then, change) => {
    const burst = microseconds(40_000);
    const state = { ...pod(100, 30_000, [{ ...container('a', 100), cpu: now, burst }]), cpu: now, burst };
    const containers = [{ id: 'a', cpu: then }];
    const steps = plan(state, { cpu: then, containers, call: 'none', volumes: NO_VOLUMES });
    const at = (kind: string, text: string): number =>
      texts(steps).findIndex((one) => one.startsWith(`${kind} ${text}`));
    for (const what of ['pod', 'container a']) {
      expect(texts(steps)).toContain(`${what} cpu.max.burst ${change}`);
      expect(at(what, 'cpu.max.burst')).toBe(at(what, 'cpu.max ') - 1);
    }
  },
);

test('lowers the CPU burst of a container before it forwards an update that lowers the quota', () => {
  const state = pod(100, 'max', [{ ...container('a', 100, 50_000), burst: microseconds(40_000) }]);
  const asked = { id: 'a', cpu: cpu(20_000) };
  expect(texts(plan(state, { asked, call: 'container', volumes: NO_VOLUMES }))).toEqual([
    'container a cpu.max.burst 40000 -> 20000',
    'runtime',
  ]);
});

describe('a sidecar without a limit, which kubelet counts as 0 (KEP-1287)', () => {
  const M = MiB;
  test('removes the limit of a sidecar before it raises another container', () => {
    const state = pod(48, 'max', [container('s1', 16), container('s2', 16), container('app', 16)]);
    const containers = [
      { id: 's1', memory: bytes(32 * M) },
      { id: 's2', memory: 'max' as const },
    ];
    expect(texts(plan(state, { containers, call: 'none', volumes: NO_VOLUMES }))).toEqual([
      `container s2 memory.max ${16 * M} -> max`,
      `container s1 memory.max ${16 * M} -> ${32 * M}`,
    ]);
  });

  test('sets the first limit of a sidecar after it lowers another container', () => {
    const state = pod(64, 'max', [container('s1', 'max'), container('s2', 32), container('app', 16)]);
    const containers = [
      { id: 's1', memory: bytes(16 * M) },
      { id: 's2', memory: bytes(16 * M) },
    ];
    expect(texts(plan(state, { containers, call: 'none', volumes: NO_VOLUMES }))).toEqual([
      `container s2 memory.max ${32 * M} -> ${16 * M}`,
      `container s1 memory.max max -> ${16 * M}`,
    ]);
  });

  test('lowers a container that does not run yet before it raises another one', () => {
    const state = pod(48, 'max', [container('a', 16)]);
    const stored = containerChanges(container('b', 32), { id: 'b', memory: bytes(16 * M) });
    const target = { containers: [{ id: 'a', memory: bytes(32 * M) }], call: 'none', volumes: NO_VOLUMES } as const;
    expect(texts(plan(state, target, [stored!]))).toEqual([
      `container b memory.max ${32 * M} -> ${16 * M}`,
      `container a memory.max ${16 * M} -> ${32 * M}`,
    ]);
  });
});

describe('the plan for several containers', () => {
  const state: PodState = {
    ...pod(300, 30_000, [
      { ...container('a', 100, 10_000), shares: cpuShares(1024) },
      { ...container('b', 200, 20_000), shares: cpuShares(1024) },
    ]),
    weight: cpuWeight(39),
  };
  const M = MiB;
  const planned = (containers: Parameters<typeof podLimitsFor>[1]): string[] =>
    texts(plan(state, { ...podLimitsFor(state, containers), containers, call: 'none', volumes: NO_VOLUMES }));

  test('lowers one container before it raises another, and keeps the pod limit when the sum does not change', () => {
    expect(
      planned([
        { id: 'a', memory: bytes(150 * MiB) },
        { id: 'b', memory: bytes(150 * MiB) },
      ]),
    ).toEqual([`container b memory.max ${200 * M} -> ${150 * M}`, `container a memory.max ${100 * M} -> ${150 * M}`]);
  });

  test('plans two updates when memory and CPU go opposite ways, with shares in the second', () => {
    const shares = cpuShares(512);
    expect(planned([{ id: 'a', memory: bytes(50 * MiB), cpu: cpu(15_000), shares }])).toEqual([
      'pod cpu.max 30000 100000 -> 35000 100000',
      `container a memory.max ${100 * M} -> ${50 * M}`,
      'container a cpu.max 10000 100000 -> 15000 100000, cpu shares 1024 -> 512',
      `pod memory.max ${300 * M} -> ${250 * M}`,
    ]);
    expect(planned([{ id: 'a', memory: bytes(150 * MiB), cpu: cpu(5000), shares }])).toEqual([
      `pod memory.max ${300 * M} -> ${350 * M}`,
      'container a cpu.max 10000 100000 -> 5000 100000',
      `container a memory.max ${100 * M} -> ${150 * M}, cpu shares 1024 -> 512`,
      'pod cpu.max 30000 100000 -> 25000 100000',
    ]);
  });

  test('plans one update when memory and CPU go the same way, or one of them does not change', () => {
    const shares = cpuShares(512);
    expect(planned([{ id: 'a', memory: bytes(50 * MiB), cpu: cpu(5000), shares }])[0]).toBe(
      `container a memory.max ${100 * M} -> ${50 * M}, cpu.max 10000 100000 -> 5000 100000, cpu shares 1024 -> 512`,
    );
    expect(planned([{ id: 'a', cpu: cpu(10_000), shares }])).toEqual(['container a cpu shares 1024 -> 512']);
  });

  test('plans one update when only the CPU period changes and not the rate', () => {
    expect(planned([{ id: 'a', memory: bytes(50 * MiB), cpu: cpu(5000, 50_000) }])).toEqual([
      `container a memory.max ${100 * M} -> ${50 * M}, cpu.max 10000 100000 -> 5000 50000`,
      `pod memory.max ${300 * M} -> ${250 * M}`,
    ]);
  });

  test('plans a step for another CPU period only if there is a quota', () => {
    const limitless = { ...state, cpu: cpu('max'), containers: [container('a', 100), container('b', 200, 20_000)] };
    const containers = [
      { id: 'a', cpu: cpu('max', 50_000) },
      { id: 'b', cpu: cpu(20_000, 50_000) },
    ];
    const target = { cpu: cpu('max', 50_000), containers, call: 'none', volumes: NO_VOLUMES } as const;
    expect(texts(plan(limitless, target))).toEqual(['container b cpu.max 20000 100000 -> 20000 50000']);
  });

  test('plans no steps for unknown containers, or for shares and weights that were not read', () => {
    const unread = { ...pod(100, 'max', [container('a', 100)]), weight: undefined };
    const containers = [
      { id: 'gone', memory: bytes(MiB) },
      { id: 'a', shares: cpuShares(512) },
    ];
    expect(plan(unread, { weight: cpuWeight(20), containers, call: 'none', volumes: NO_VOLUMES })).toEqual([]);
  });

  test('writes the pod weight before the containers, and only when it differs', () => {
    const containers = [{ id: 'a', shares: cpuShares(512) }];
    const target = { containers, call: 'none', volumes: NO_VOLUMES } as const;
    expect(texts(plan(state, { ...target, weight: cpuWeight(20) }))).toEqual([
      'pod cpu.weight 39 -> 20',
      'container a cpu shares 1024 -> 512',
    ]);
    expect(texts(plan(state, { ...target, weight: cpuWeight(39) }))).toEqual(['container a cpu shares 1024 -> 512']);
  });
});

describe('containerChanges', () => {
  const now = container('a', 100, 10_000);

  test('containerChanges returns each value that differs', () => {
    const to = { ...container('a', 50, 20_000), shares: cpuShares(2) };
    const memory = { from: now.memory, to: to.memory };
    const cpus = { from: now.cpu, to: to.cpu };
    expect(containerChanges(now, to)).toStrictEqual({ kind: 'container', id: 'a', memory, cpu: cpus });
    expect(containerChanges(now, { ...now, memory: to.memory })).toStrictEqual({ kind: 'container', id: 'a', memory });
    expect(containerChanges(now, { ...now, cpu: to.cpu })).toStrictEqual({ kind: 'container', id: 'a', cpu: cpus });
  });

  test('containerChanges returns undefined if values differ only by the rounding of the kernel', () => {
    expect(containerChanges(now, { ...now })).toBeUndefined();
    expect(containerChanges(now, { ...now, memory: bytes(100 * MiB + 4095) })).toBeUndefined();
  });
});

// Swap and other settings of containers, on thousands of random pods and resizes.

const swapMax = fc.oneof(
  fc.constant('max' as const),
  fc.integer({ min: 0, max: 8 }).map((n) => bytes(n * 8 * MiB)),
);
const settings = fc.record(
  {
    'memory.high': fc.constantFrom('max', String(8 * MiB), String(16 * MiB)),
    'memory.low': fc.constantFrom('0', '4096'),
    'cpuset.cpus': fc.constantFrom('0-3', '0-1', '2'),
    'hugetlb.2MB.max': fc.constantFrom('max', '0'),
  },
  { requiredKeys: [], noNullPrototype: true },
);
const others = fc.record({ swap: swapMax, settings }, { requiredKeys: [], noNullPrototype: true });

/** A resize in which each container has swap and settings, which it keeps or changes. */
const withSettings: fc.Arbitrary<Case> = fc
  .record({
    state: podState,
    wanted: changesOf,
    now: fc.array(fc.record({ swap: swapMax, settings }, { requiredKeys: ['settings'], noNullPrototype: true }), {
      minLength: 10,
      maxLength: 10,
    }),
    then: fc.array(fc.option(others, { nil: undefined, freq: 2 }), { minLength: 10, maxLength: 10 }),
  })
  .map(({ state: bare, wanted, now, then }) => {
    const containers = bare.containers.map((container, index): LiveContainer => ({ ...container, ...now[index] }));
    const state: PodState = { ...bare, containers };
    const targets = wanted(state).map((limits, index): ContainerLimits => {
      const { settings: asked = {}, swap } = then[index] ?? {};
      const known = Object.entries(asked).filter(([file]) => file in (containers[index]!.settings ?? {}));
      return { ...limits, ...(swap !== undefined && { swap }), settings: Object.fromEntries(known) };
    });
    return new Case(state, { ...podLimitsFor(state, targets), containers: targets, call: 'none', volumes: NO_VOLUMES });
  });

test('each container ends with the swap and settings of its target, and keeps those that the target does not set', () => {
  holds(2500, withSettings, ({ state, target, end }) => {
    for (const [index, { swap, settings: found }] of end.containers.entries()) {
      const [before, wanted] = [state.containers[index]!, target.containers?.[index]];
      const changes = { ...before.settings, ...wanted?.settings };
      expect(found).toEqual(changes);
      expect(swap).toBe(before.swap === undefined ? undefined : (wanted?.swap ?? before.swap));
    }
  });
});

test('a rollback restores swap and settings, and no step exceeds a limit of the pod', () => {
  holds(2500, withSettings, ({ state, states, steps }) => {
    expectWithin(states, 'derived');
    expect(isDeepStrictEqual(undone(states.at(-1)!, steps).at(-1), state)).toBe(true);
  });
});

test('swap changes only together with memory, because CRI sets their sum', () => {
  holds(2500, withSettings, ({ containerSteps }) => {
    for (const { swap, memory } of containerSteps) if (swap !== undefined) expect(memory).toBeDefined();
  });
});

test('an update of memory includes all settings of the target, because the runtime would write its stored ones', () => {
  holds(2500, withSettings, ({ state, target, containerSteps }) => {
    for (const [index, { id, swap, settings: wanted = {} }] of (target.containers ?? []).entries()) {
      const before = state.containers[index]!;
      const own = containerSteps.filter((step) => step.id === id);
      const withMemory = own.find(({ memory }) => memory !== undefined && memory.from !== memory.to);
      if (withMemory !== undefined && swap !== undefined && before.swap !== undefined)
        expect(withMemory.swap).toEqual({ from: before.swap, to: swap });
      const unchanged = Object.entries(wanted).filter(([file, to]) => before.settings?.[file] === to);
      for (const [file] of unchanged) for (const step of own) expect(step.settings).toHaveProperty([file]);
    }
  });
});

test('a second plan for the same swap and settings has no steps', () => {
  holds(2500, withSettings, ({ target, end }) => {
    expect(plan(end, target)).toEqual([]);
  });
});

/** A resize of a pod with what kubelet derives from limits and requests, which follows the new limits. */
const setUpByKubelet: fc.Arbitrary<Case> = fc
  .record({ state: podState, wanted: changesOf, kubelet: setup })
  .map(({ state: bare, wanted, kubelet }) => {
    const state: PodState = { ...bare, containers: setUp(bare.containers, kubelet) };
    const targets = wanted(state).map((limits): ContainerLimits => {
      const place = state.containers.findIndex(({ id }) => id === limits.id);
      const [then] = setUp([{ ...state.containers[place]!, ...limits }], {
        ...kubelet,
        parts: kubelet.parts.slice(place),
      });
      return { ...limits, ...(then?.settings && { settings: then.settings }) };
    });
    return new Case(state, { ...podLimitsFor(state, targets), containers: targets, call: 'none', volumes: NO_VOLUMES });
  });

test('KEP-2570: the memory.high that kubelet derives from a memory limit changes in the same update as the limit', () => {
  holds(1500, setUpByKubelet, ({ states, state, end }) => {
    const textOf = ({ memory, settings }: LiveContainer): string => `${memory}, high ${settings?.['memory.high']}`;
    for (const [index, before] of state.containers.entries()) {
      const ends = [before, end.containers[index]!].map(textOf);
      const found = states.map(({ containers }) => textOf(containers[index]!)).find((text) => !ends.includes(text));
      if (found !== undefined) expect.fail(`${found} is neither of ${ends.join(' and ')}`);
    }
  });
});
