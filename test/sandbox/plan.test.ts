import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isMemoryTight, plan, podLimitsFor } from '../../src/sandbox/plan.ts';
import type { PodState, Step } from '../../src/sandbox/state.ts';
import { describeStep } from '../../src/sandbox/transaction.ts';
import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../src/units/index.ts';
import { NO_VOLUMES, apply, cpuLimit, cpuSum, memoryLimit, memorySum, podState, sumsAreWithin } from './pods.ts';

const MI = 1024 * 1024;
const PERIOD = microseconds(100_000);

const container = (id: string, mebibytes: number | 'max', quota: number | 'max' = 'max') => ({
  id,
  memory: mebibytes === 'max' ? ('max' as const) : bytes(mebibytes * MI),
  cpu: { quota: quota === 'max' ? ('max' as const) : microseconds(quota), period: PERIOD },
});

const pod = (memory: number | 'max', quota: number | 'max', containers: PodState['containers']): PodState => ({
  ...container('', memory, quota),
  weight: undefined,
  overhead: { memory: bytes(0), cpu: { quota: microseconds(0), period: PERIOD } },
  containers,
  volumes: [],
});

const words = (steps: readonly Step[]): string[] => steps.map(describeStep);

describe('a container is updated', () => {
  const update = fc.record({
    state: podState,
    index: fc.nat(9),
    memory: fc.option(memoryLimit, { nil: undefined }),
    cpu: fc.option(cpuLimit, { nil: undefined }),
  });

  const carryOut = (state: PodState, index: number, memory?: Limit<Bytes>, cpu?: CpuMax) => {
    const chosen = state.containers[index % state.containers.length]!;
    const wanted = { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
    const steps = plan(state, {
      ...podLimitsFor(state, [{ id: chosen.id, ...wanted }]),
      call: 'container',
      volumes: NO_VOLUMES,
    });
    const runtime = (before: PodState): PodState => ({
      ...before,
      containers: before.containers.map((entry) => (entry.id === chosen.id ? { ...entry, ...wanted } : entry)),
    });
    const states = [state];
    for (const step of steps) states.push(apply(states.at(-1)!, step, runtime));
    return { steps, states, end: states.at(-1)!, chosen };
  };

  test('at no step is the sum of the containers above a finite pod limit', () => {
    fc.assert(
      fc.property(update, ({ state, index, memory, cpu }) => {
        const { steps, states } = carryOut(state, index, memory, cpu);
        for (const [at, after] of states.entries()) {
          expect(sumsAreWithin(after), `after ${at} of ${words(steps).join('; ')}`).toBe(true);
        }
      }),
      { numRuns: 20_000 },
    );
  });

  test('a tight limit is tight again at the end, a looser one never lower than before, max is max', () => {
    fc.assert(
      fc.property(update, ({ state, index, memory }) => {
        const { end } = carryOut(state, index, memory);
        if (state.memory === 'max') expect(end.memory).toBe('max');
        else if (state.memory === memorySum(state)) {
          expect(end.memory === 'max' ? Infinity : end.memory).toBe(memorySum(end));
        } else expect(end.memory === 'max' ? Infinity : end.memory).toBeGreaterThanOrEqual(state.memory);
      }),
      { numRuns: 20_000 },
    );
  });

  test('the same update again has nothing to do but to call the runtime', () => {
    fc.assert(
      fc.property(update, ({ state, index, memory, cpu }) => {
        const { end } = carryOut(state, index, memory, cpu);
        expect(words(carryOut(end, index, memory, cpu).steps)).toEqual(['runtime']);
      }),
      { numRuns: 5_000 },
    );
  });

  test('raises the pod before and lowers it after, each resource by itself', () => {
    const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
    const limits = podLimitsFor(state, [
      {
        id: 'a',
        memory: bytes(150 * MI),
        cpu: { quota: microseconds(5000), period: PERIOD },
      },
    ]);
    expect(words(plan(state, { ...limits, call: 'container', volumes: NO_VOLUMES }))).toEqual([
      `pod memory.max ${300 * MI} -> ${350 * MI}`,
      'runtime',
      'pod cpu.max 30000 100000 -> 25000 100000',
    ]);
  });

  test('a looser limit is raised only when the sum passes it', () => {
    const state = pod(400, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(200 * MI) }])).toEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(50 * MI) }])).toEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(250 * MI) }])).toEqual({ memory: 450 * MI });
  });

  test('a limit under the sum was set on purpose and stays', () => {
    const state = pod(250, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(300 * MI) }])).toEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(10 * MI) }])).toEqual({});
  });

  test('a container that loses its limit takes a tight pod limit away', () => {
    const state = pod(300, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: 'max' }])).toEqual({ memory: 'max' });
  });

  test('limits that the kernel rounded down to pages are still tight', () => {
    // Two containers of 500M in a pod of 1000M: none of the three is a whole number of pages.
    const limit = (size: number) => bytes(Math.floor(size / 4096) * 4096);
    const state = {
      ...pod('max', 'max', [
        { ...container('a', 1), memory: limit(500e6) },
        { ...container('b', 1), memory: limit(500e6) },
      ]),
      memory: limit(1000e6),
    };
    expect(isMemoryTight(state)).toBe(true);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(400e6) }])).toEqual({ memory: 400e6 + limit(500e6) });
  });

  test("kubelet's sum of milliCPU under the kernel's least quotas is tight", () => {
    // 5m and 100m: kubelet gives the pod 105m, the first container the least quota of 1000 instead of 500.
    const state = pod('max', 10_500, [container('a', 'max', 1000), container('b', 'max', 10_000)]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toEqual({ cpu: { quota: 30_000, period: PERIOD } });
  });

  test('quotas of other periods count by their rate', () => {
    const other = { ...container('b', 'max'), cpu: { quota: microseconds(5000), period: microseconds(20_000) } };
    const state = pod('max', 35_000, [container('a', 'max', 10_000), other]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toEqual({ cpu: { quota: 45_000, period: PERIOD } });
  });
});

describe('volumes', () => {
  const withVolumes = (memory: number): PodState => ({
    ...pod(memory, 'max', [container('a', memory)]),
    volumes: [
      { name: 'big', size: bytes(200 * MI) },
      { name: 'small', size: bytes(100 * MI) },
    ],
  });
  const target = (to: number, sizes: Record<string, number>) => ({
    ...podLimitsFor(withVolumes(200), [{ id: 'a', memory: bytes(to * MI) }]),
    call: 'container' as const,
    volumes: new Map(Object.entries(sizes).map(([name, size]) => [name, bytes(size * MI)])),
  });
  const M = MI;

  // The matrix of docs/resize.md: volume and limit, what comes first.
  test.each([
    [
      'up',
      'up',
      300,
      { big: 300 },
      [`pod memory.max ${200 * M} -> ${300 * M}`, 'runtime', `volume big ${200 * M} -> ${300 * M}`],
    ],
    [
      'down',
      'down',
      100,
      { big: 100 },
      [`volume big ${200 * M} -> ${100 * M}`, 'runtime', `pod memory.max ${200 * M} -> ${100 * M}`],
    ],
    ['up', 'same', 200, { small: 150 }, ['runtime', `volume small ${100 * M} -> ${150 * M}`]],
    ['down', 'same', 200, { small: 50 }, [`volume small ${100 * M} -> ${50 * M}`, 'runtime']],
    [
      'up',
      'down',
      150,
      { small: 120 },
      ['runtime', `pod memory.max ${200 * M} -> ${150 * M}`, `volume small ${100 * M} -> ${120 * M}`],
    ],
    [
      'down',
      'up',
      300,
      { big: 100 },
      [`volume big ${200 * M} -> ${100 * M}`, `pod memory.max ${200 * M} -> ${300 * M}`, 'runtime'],
    ],
    ['same', 'up', 300, {}, [`pod memory.max ${200 * M} -> ${300 * M}`, 'runtime']],
  ] as const)('volume %s, limit %s', (_volume, _limit, memory, sizes, expected) => {
    expect(words(plan(withVolumes(200), target(memory, sizes)))).toEqual(expected);
  });

  test('all that shrink come before every cgroup step, all that grow after', () => {
    expect(words(plan(withVolumes(200), target(300, { big: 100, small: 250 })))).toEqual([
      `volume big ${200 * M} -> ${100 * M}`,
      `pod memory.max ${200 * M} -> ${300 * M}`,
      'runtime',
      `volume small ${100 * M} -> ${250 * M}`,
    ]);
  });
});

test('a pod is updated: its cgroup is written, then the runtime is told', () => {
  const state = { ...pod(300, 30_000, [container('a', 300, 30_000)]), volumes: [] };
  const steps = plan(state, {
    memory: bytes(200 * MI),
    cpu: { quota: microseconds(50_000), period: PERIOD },
    unified: [
      { key: 'memory.high', from: 'max', to: '1000000' },
      { key: 'pids.max', from: '100', to: '100' },
    ],
    call: 'pod',
    volumes: NO_VOLUMES,
  });
  expect(words(steps)).toEqual([
    'pod cpu.max 30000 100000 -> 50000 100000',
    'pod memory.high max -> 1000000',
    `pod memory.max ${300 * MI} -> ${200 * MI}`,
    'runtime',
  ]);
  expect(cpuSum(state)).toBe(30_000);
});
