import { describe, expect, test } from 'vitest';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../../src/core/quantities/index.ts';
import { MiB, NO_OVERHEAD, NO_VOLUMES, PERIOD, inPages } from '../../support/resize/pods.ts';
import type { PodState } from '../../../src/sandbox/pod-state.ts';
import { type Step, describeStep } from '../../../src/resize/model/step.ts';
import { compareLimits } from '../../../src/resize/model/compare.ts';
import { containerChanges, plan } from '../../../src/resize/plan/steps.ts';
import {
  isMemoryTight,
  hasRaisedContainer,
  fitsPreviousLimit,
  podLimitsFor,
} from '../../../src/resize/plan/pod-limits.ts';

const container = (id: string, mebibytes: number | 'max', quota: number | 'max' = 'max') => ({
  id,
  memory: mebibytes === 'max' ? ('max' as const) : bytes(mebibytes * MiB),
  cpu: { quota: quota === 'max' ? ('max' as const) : microseconds(quota), period: PERIOD },
});

const pod = (memory: number | 'max', quota: number | 'max', containers: PodState['containers']): PodState => ({
  ...container('', memory, quota),
  weight: undefined,
  overhead: NO_OVERHEAD,
  containers,
  volumes: [],
});

const cpu = (quota: number | 'max', period = 100_000) => ({
  quota: quota === 'max' ? quota : microseconds(quota),
  period: microseconds(period),
});

const words = (steps: readonly Step[]): string[] => steps.map(describeStep);

describe('a container is updated', () => {
  test('raises the pod before and lowers it after, each resource by itself', () => {
    const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
    const limits = podLimitsFor(state, [
      {
        id: 'a',
        memory: bytes(150 * MiB),
        cpu: { quota: microseconds(5000), period: PERIOD },
      },
    ]);
    expect(words(plan(state, { ...limits, call: 'container', volumes: NO_VOLUMES }))).toEqual([
      `pod memory.max ${300 * MiB} -> ${350 * MiB}`,
      'runtime',
      'pod cpu.max 30000 100000 -> 25000 100000',
    ]);
  });

  test('a looser limit is raised only when the sum passes it', () => {
    const state = pod(400, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(200 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(50 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(250 * MiB) }])).toStrictEqual({ memory: 450 * MiB });
  });

  test('a limit under the sum was set on purpose and stays', () => {
    const state = pod(250, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(300 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(10 * MiB) }])).toStrictEqual({});
  });

  test('a container that loses its limit takes a tight pod limit away', () => {
    const state = pod(300, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: 'max' }])).toStrictEqual({ memory: 'max' });
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
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(400e6) }])).toStrictEqual({ memory: 400e6 + limit(500e6) });
  });

  test('quotas that systemd has rounded up to whole percents are still tight, in its units', () => {
    const raised = [{ id: 'a', cpu: cpu(20_000) }];
    const lowered = [{ id: 'a', cpu: cpu(5000) }];
    // 12.34 % and 20.56 %, as asked for 32900.
    const containers = [container('a', 'max', 13_000), container('b', 'max', 21_000)];
    const inFiles = pod('max', 32_900, containers);
    expect(podLimitsFor(inFiles, raised)).toStrictEqual({});
    const inUnits: PodState = { ...inFiles, inPercents: true };
    expect(podLimitsFor(inUnits, raised)).toStrictEqual({ cpu: cpu(41_000) });
    expect(podLimitsFor(inUnits, lowered)).toStrictEqual({ cpu: cpu(26_000) });
    // The pod's own: 32.9 % that became 33.
    const exact = [container('a', 'max', 12_340), container('b', 'max', 20_560)];
    expect(podLimitsFor(pod('max', 33_000, exact), lowered)).toStrictEqual({});
    expect(podLimitsFor({ ...pod('max', 33_000, exact), inPercents: true }, lowered)).toStrictEqual({
      cpu: cpu(25_560),
    });
    // More than that is on purpose.
    expect(podLimitsFor({ ...pod('max', 34_000, exact), inPercents: true }, lowered)).toStrictEqual({});
    expect(podLimitsFor({ ...pod('max', 30_800, exact), inPercents: true }, raised)).toStrictEqual({});
  });

  test("kubelet's sum of milliCPU under the kernel's least quotas is tight", () => {
    // 5m and 100m: kubelet gives the pod 105m, the first container the least quota of 1000 instead of 500.
    const state = pod('max', 10_500, [container('a', 'max', 1000), container('b', 'max', 10_000)]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toStrictEqual({ cpu: { quota: 30_000, period: PERIOD } });
  });

  test('but a limit of CPU that is as far under other quotas was set on purpose', () => {
    const state = pod('max', 29_500, [container('a', 'max', 10_000), container('b', 'max', 20_000)]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(20_000) }])).toStrictEqual({});
    const least = pod('max', 20_500, [
      container('a', 'max', 1000),
      container('b', 'max', 20_000),
      container('c', 'max', 1000),
    ]);
    expect(podLimitsFor(least, [{ id: 'b', cpu: cpu(30_000) }])).toStrictEqual({ cpu: cpu(32_000) });
    const under = { ...least, cpu: cpu(19_996) };
    expect(podLimitsFor(under, [{ id: 'b', cpu: cpu(30_000) }])).toStrictEqual({});
  });

  test('quotas of other periods count by their rate', () => {
    const other = { ...container('b', 'max'), cpu: { quota: microseconds(5000), period: microseconds(20_000) } };
    const state = pod('max', 35_000, [container('a', 'max', 10_000), other]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toStrictEqual({ cpu: { quota: 45_000, period: PERIOD } });
  });
});

describe('a sum that cannot be told', () => {
  const largest = bytes(Number.MAX_SAFE_INTEGER - 4095);
  const refusal = (file: string) =>
    expect.objectContaining({ reason: 'INVALID_VALUE', context: expect.objectContaining({ file }) as object }) as Error;

  test('is refused, of memory and of CPU', () => {
    const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
    expect(() => podLimitsFor(state, [{ id: 'a', memory: largest }])).toThrow(refusal('memory.max'));
    const quota = microseconds(2 ** 44 - 1);
    expect(() => podLimitsFor(state, [{ id: 'a', cpu: { quota, period: PERIOD } }])).toThrow(refusal('cpu.max'));
  });

  test('is none where the pod has no limit', () => {
    const state = pod('max', 'max', [container('a', 100, 10_000), container('b', 200, 20_000)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: largest }])).toEqual({});
  });
});

describe('a limit that the kernel has rounded', () => {
  const rounded = (sizes: readonly number[], podSize: number, overhead = 0): PodState => ({
    ...pod(
      'max',
      'max',
      sizes.map((size, index) => ({ ...container(`c${index}`, 1), memory: inPages(bytes(size)) })),
    ),
    memory: inPages(bytes(podSize)),
    overhead: { ...NO_OVERHEAD, memory: bytes(overhead) },
  });

  test('is tight though the overhead is no whole number of pages', () => {
    // Of 100M and 130M the kernel has less than the page that the pod's 230M lose.
    const state = rounded([100e6], 230e6, 130e6);
    expect(isMemoryTight(state)).toBe(true);
    expect(podLimitsFor(state, [{ id: 'c0', memory: bytes(200e6) }])).toStrictEqual({ memory: 330e6 });
  });

  test('is the same limit when it is asked for again: nothing to do', () => {
    const state = { ...rounded([100e6], 100e6), volumes: [{ name: 'v', size: bytes(100_003_840) }] };
    const containers = [{ id: 'c0', memory: bytes(100e6) }];
    const volumes = new Map([['v', bytes(100e6)]]);
    expect(podLimitsFor(state, containers)).toStrictEqual({});
    expect(plan(state, { memory: bytes(100e6), containers, call: 'none', volumes })).toEqual([]);
  });

  test('is tight up to a page for each container: the overhead loses one too, the pod only one in all', () => {
    const odd = 10 * MiB + 4095;
    const state = rounded([odd, odd], 3 * odd, odd);
    expect(state.memory).toBe(30 * MiB + 2 * 4096);
    expect(isMemoryTight(state)).toBe(true);
    expect(podLimitsFor(state, [{ id: 'c0', memory: bytes(8 * MiB) }])).toStrictEqual({ memory: 28 * MiB + 4095 });
    const looser = { ...state, memory: bytes(30 * MiB + 3 * 4096) };
    expect(isMemoryTight(looser)).toBe(false);
    expect(podLimitsFor(looser, [{ id: 'c0', memory: bytes(8 * MiB) }])).toStrictEqual({});
  });

  test('and is a little above the sum stays as it is when the sum does', () => {
    const state = { ...rounded([50 * MiB, 150 * MiB], 200 * MiB + 4096), cpu: cpu(30_002) };
    const containers = [container('c0', 50, 10_000), container('c1', 150, 20_000)];
    const trade = [container('c0', 100, 15_000), container('c1', 100, 15_000)];
    expect(podLimitsFor({ ...state, containers }, trade)).toStrictEqual({});
  });

  test("stays when its containers' limits only trade places", () => {
    const state = rounded([500e6, 500e6], 1000e6);
    const containerChanges = [400e6, 600e6].map((size, index) => ({ id: `c${index}`, memory: bytes(size) }));
    expect(podLimitsFor(state, containerChanges)).toStrictEqual({});
  });
});

describe('several containers are updated', () => {
  const state: PodState = {
    ...pod(300, 30_000, [
      { ...container('a', 100, 10_000), shares: cpuShares(1024) },
      { ...container('b', 200, 20_000), shares: cpuShares(1024) },
    ]),
    weight: cpuWeight(39),
  };
  const M = MiB;
  const planned = (containers: Parameters<typeof podLimitsFor>[1]): string[] =>
    words(plan(state, { ...podLimitsFor(state, containers), containers, call: 'none', volumes: NO_VOLUMES }));

  test('what one loses another may gain: the loss first, and the pod untouched', () => {
    expect(
      planned([
        { id: 'a', memory: bytes(150 * MiB) },
        { id: 'b', memory: bytes(150 * MiB) },
      ]),
    ).toEqual([`container b memory.max ${200 * M} -> ${150 * M}`, `container a memory.max ${100 * M} -> ${150 * M}`]);
  });

  test('two updates where memory and CPU go opposite ways, shares with the second', () => {
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

  test('one update where they go the same way, or one stays', () => {
    const shares = cpuShares(512);
    expect(planned([{ id: 'a', memory: bytes(50 * MiB), cpu: cpu(5000), shares }])[0]).toBe(
      `container a memory.max ${100 * M} -> ${50 * M}, cpu.max 10000 100000 -> 5000 100000, cpu shares 1024 -> 512`,
    );
    expect(planned([{ id: 'a', cpu: cpu(10_000), shares }])).toEqual(['container a cpu shares 1024 -> 512']);
  });

  test('the same rate at another period goes with whatever else there is: it is no opposite way', () => {
    expect(planned([{ id: 'a', memory: bytes(50 * MiB), cpu: cpu(5000, 50_000) }])).toEqual([
      `container a memory.max ${100 * M} -> ${50 * M}, cpu.max 10000 100000 -> 5000 50000`,
      `pod memory.max ${300 * M} -> ${250 * M}`,
    ]);
  });

  test('another period is another limit, but not where there is none', () => {
    const limitless = { ...state, cpu: cpu('max'), containers: [container('a', 100), container('b', 200, 20_000)] };
    const containers = [
      { id: 'a', cpu: cpu('max', 50_000) },
      { id: 'b', cpu: cpu(20_000, 50_000) },
    ];
    const target = { cpu: cpu('max', 50_000), containers, call: 'none', volumes: NO_VOLUMES } as const;
    expect(words(plan(limitless, target))).toEqual(['container b cpu.max 20000 100000 -> 20000 50000']);
  });

  test('what the state does not have is not planned: no such container, no shares or weight that anybody has read', () => {
    const unread = { ...pod(100, 'max', [container('a', 100)]), weight: undefined };
    const containers = [
      { id: 'gone', memory: bytes(MiB) },
      { id: 'a', shares: cpuShares(512) },
    ];
    expect(plan(unread, { weight: cpuWeight(20), containers, call: 'none', volumes: NO_VOLUMES })).toEqual([]);
  });

  test("the pod's weight is written before its containers change, and only when it is another", () => {
    const containers = [{ id: 'a', shares: cpuShares(512) }];
    const target = { containers, call: 'none', volumes: NO_VOLUMES } as const;
    expect(words(plan(state, { ...target, weight: cpuWeight(20) }))).toEqual([
      'pod cpu.weight 39 -> 20',
      'container a cpu shares 1024 -> 512',
    ]);
    expect(words(plan(state, { ...target, weight: cpuWeight(39) }))).toEqual(['container a cpu shares 1024 -> 512']);
  });
});

describe("the pod's CPU limit", () => {
  test('is not raised when its containers lose, though kubelet left it under their sum', () => {
    // 5m and 100m, as above: 10500 for the pod, 11000 for its containers. Now 10900 is no reason to raise.
    const state = pod('max', 10_500, [container('a', 'max', 1000), container('b', 'max', 10_000)]);
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9900) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(10_000) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9500) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9000) }])).toStrictEqual({ cpu: cpu(10_000) });
  });

  test('is a whole number of microseconds, whatever thirds of one add up to', () => {
    const third = (id: string) => ({ ...container(id, 'max'), cpu: cpu(10_000, 30_000) });
    const state = pod('max', 100_000, [third('a'), third('b'), third('c')]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(20_000, 60_000) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(20_000, 30_000) }])).toStrictEqual({ cpu: cpu(133_334) });
  });

  test('is as large as the kernel takes, and what comes to more is refused with both figures', () => {
    const most = 2 ** 44 - 1;
    const state = pod('max', 2000, [container('a', 'max', 1000), container('b', 'max', 1000)]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(most - 1000) }])).toStrictEqual({ cpu: cpu(most) });
    expect(() => podLimitsFor(state, [{ id: 'a', cpu: cpu(most - 999) }])).toThrow(
      expect.objectContaining({
        reason: 'INVALID_VALUE',
        message: `cpu.max: the sum of the containers' limits is ${most + 1}, more than the maximum ${most}`,
      }),
    );
  });

  test('is never less than the least quota', () => {
    const state = pod('max', 1000, [{ ...container('a', 'max'), cpu: cpu(10_000, 1_000_000) }]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(5000, 1_000_000) }])).toStrictEqual({});
  });
});

describe('what the containers have now', () => {
  const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
  const memoryStep = (from: number | 'max') => ({
    kind: 'pod-memory' as const,
    from: from === 'max' ? from : bytes(from),
    to: bytes(400 * MiB),
  });
  const cpuStep = (from: number | 'max') => ({ kind: 'pod-cpu' as const, from: cpu(from), to: cpu(40_000) });

  test.each([
    ['no limit', memoryStep('max'), true],
    ['just the sum', memoryStep(300 * MiB), true],
    ['a page less for each container', memoryStep(300 * MiB - 2 * 4096), true],
    ['less than that', memoryStep(300 * MiB - 2 * 4096 - 1), false],
    ['no CPU limit', cpuStep('max'), true],
    ['just the sum of CPU', cpuStep(30_000), true],
    ['the least quota less for each container', cpuStep(30_000 - 2 * 1001), true],
    ['less than that', cpuStep(30_000 - 2 * 1001 - 1), false],
  ])('fits into what the pod had before, or not: %s', (_name, step, fits) => {
    expect(fitsPreviousLimit(state, step)).toBe(fits);
  });

  test('fits into no limit at all when one of them has none', () => {
    const unlimited = { ...state, containers: [container('a', 'max', 'max')] };
    expect(fitsPreviousLimit(unlimited, memoryStep(300 * MiB))).toBe(false);
    expect(fitsPreviousLimit(unlimited, cpuStep(30_000))).toBe(false);
  });

  const memoryOf = (id: string, from: number | 'max') => ({
    kind: 'container' as const,
    id,
    memory: { from: from === 'max' ? from : bytes(from * MiB), to: bytes(1) },
  });
  const cpuOf = (id: string, from: number | 'max') => ({
    kind: 'container' as const,
    id,
    cpu: { from: cpu(from), to: cpu(1000) },
  });

  test.each([
    ['no update', [], false, false],
    ['as it was', [memoryOf('a', 100), cpuOf('a', 10_000)], false, false],
    ['less memory than it had', [memoryOf('a', 101)], false, false],
    ['more memory than it had', [memoryOf('b', 200), memoryOf('a', 99)], true, false],
    ['a limit of memory where there was none', [memoryOf('a', 'max')], false, false],
    ['less CPU than it had', [cpuOf('a', 10_001)], false, false],
    ['more CPU than it had', [cpuOf('b', 20_000), cpuOf('a', 9999)], false, true],
    ['a limit of CPU where there was none', [cpuOf('a', 'max')], false, false],
    ['a container that has gone', [memoryOf('c', 1), cpuOf('c', 1000)], false, false],
  ])('is more than they had before an update, or not: %s', (_name, updates, memory, ofCpu) => {
    expect(hasRaisedContainer(state, updates, 'pod-memory')).toBe(memory);
    expect(hasRaisedContainer(state, updates, 'pod-cpu')).toBe(ofCpu);
  });

  test('no limit is more than one, and no more than none', () => {
    const unlimited = { ...state, containers: [container('a', 'max', 'max')] };
    const [had, none] = [
      [memoryOf('a', 100), cpuOf('a', 10_000)],
      [memoryOf('a', 'max'), cpuOf('a', 'max')],
    ];
    for (const kind of ['pod-memory', 'pod-cpu'] as const) {
      expect(hasRaisedContainer(unlimited, had, kind)).toBe(true);
      expect(hasRaisedContainer(unlimited, none, kind)).toBe(false);
    }
  });
});

describe('one update takes a container from some limits to others', () => {
  const now = container('a', 100, 10_000);

  test('each of them, whichever way, where it is another', () => {
    const to = { ...container('a', 50, 20_000), shares: cpuShares(2) };
    const memory = { from: now.memory, to: to.memory };
    const cpus = { from: now.cpu, to: to.cpu };
    expect(containerChanges(now, to)).toStrictEqual({ kind: 'container', id: 'a', memory, cpu: cpus });
    expect(containerChanges(now, { ...now, memory: to.memory })).toStrictEqual({ kind: 'container', id: 'a', memory });
    expect(containerChanges(now, { ...now, cpu: to.cpu })).toStrictEqual({ kind: 'container', id: 'a', cpu: cpus });
  });

  test('and there is none where nothing changes, but for what the kernel rounds away', () => {
    expect(containerChanges(now, { ...now })).toBeUndefined();
    expect(containerChanges(now, { ...now, memory: bytes(100 * MiB + 4095) })).toBeUndefined();
  });
});

test('limits compare as their sizes, and no limit is above them all', () => {
  expect(compareLimits(bytes(1), bytes(2))).toBeLessThan(0);
  expect(compareLimits(bytes(2), bytes(1))).toBeGreaterThan(0);
  expect(compareLimits('max', bytes(1))).toBeGreaterThan(0);
  expect(compareLimits(bytes(1), 'max')).toBeLessThan(0);
  expect(compareLimits('max', 'max')).toBe(0);
  expect(compareLimits(bytes(1), bytes(1))).toBe(0);
});

describe('volumes', () => {
  const withVolumes = (memory: number): PodState => ({
    ...pod(memory, 'max', [container('a', memory)]),
    volumes: [
      { name: 'big', size: bytes(200 * MiB) },
      { name: 'small', size: bytes(100 * MiB) },
    ],
  });
  const target = (to: number, sizes: Record<string, number>) => ({
    ...podLimitsFor(withVolumes(200), [{ id: 'a', memory: bytes(to * MiB) }]),
    call: 'container' as const,
    volumes: new Map(Object.entries(sizes).map(([name, size]) => [name, bytes(size * MiB)])),
  });
  const M = MiB;

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
    ['same', 'down', 100, {}, ['runtime', `pod memory.max ${200 * M} -> ${100 * M}`]],
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
    memory: bytes(200 * MiB),
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
    `pod memory.max ${300 * MiB} -> ${200 * MiB}`,
    'runtime',
  ]);
});
