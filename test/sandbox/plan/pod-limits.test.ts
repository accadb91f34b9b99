import { describe, expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import {
  fitsPreviousLimit,
  fitsRolledBack,
  hasRaisedContainer,
  ifTheyArrive,
  isMemoryTight,
  nextContainersExceed,
  podLimitsFor,
  podStepsLeft,
} from '../../../src/sandbox/plan/pod-limits.ts';
import type { ContainerStep, Step } from '../../../src/sandbox/plan/step.ts';
import { plan } from '../../../src/sandbox/plan/steps.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { container, cpu, pod } from '../../support/resize/plan-cases.ts';
import { inPages, NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';
import { cpu as cpuOf } from '../../support/resize/resized-pod.ts';

describe('podLimitsFor', () => {
  test('raises a loose limit only when the sum exceeds it', () => {
    const state = pod(400, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(200 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(50 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(250 * MiB) }])).toStrictEqual({ memory: 450 * MiB });
  });

  test('keeps a pod limit below the sum, which was set on purpose', () => {
    const state = pod(250, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(300 * MiB) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', memory: bytes(10 * MiB) }])).toStrictEqual({});
  });

  test('removes a tight limit when a container loses its limit', () => {
    const state = pod(300, 'max', [container('a', 100), container('b', 200)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: 'max' }])).toStrictEqual({ memory: 'max' });
  });

  test('regards a pod limit as tight if the kernel has rounded the limits down to pages', () => {
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

  test('regards a pod quota as tight if systemd has rounded the quotas of units up to whole percents', () => {
    const raised = [{ id: 'a', cpu: cpu(20_000) }];
    const lowered = [{ id: 'a', cpu: cpu(5000) }];
    // 12.34 % and 20.56 % are 32900 together.
    const containers = [container('a', 'max', 13_000), container('b', 'max', 21_000)];
    const inFiles = pod('max', 32_900, containers);
    expect(podLimitsFor(inFiles, raised)).toStrictEqual({});
    const inUnits: PodState = { ...inFiles, inPercents: true };
    expect(podLimitsFor(inUnits, raised)).toStrictEqual({ cpu: cpu(41_000) });
    expect(podLimitsFor(inUnits, lowered)).toStrictEqual({ cpu: cpu(26_000) });
    // The pod's own limit of 32.9 % became 33 %.
    const exact = [container('a', 'max', 12_340), container('b', 'max', 20_560)];
    expect(podLimitsFor(pod('max', 33_000, exact), lowered)).toStrictEqual({});
    expect(podLimitsFor({ ...pod('max', 33_000, exact), inPercents: true }, lowered)).toStrictEqual({
      cpu: cpu(25_560),
    });
    // A larger difference is taken as intended.
    expect(podLimitsFor({ ...pod('max', 34_000, exact), inPercents: true }, lowered)).toStrictEqual({});
    expect(podLimitsFor({ ...pod('max', 30_800, exact), inPercents: true }, raised)).toStrictEqual({});
  });

  test('regards the milliCPU sum of kubelet as tight when the minimum quotas of containers exceed it', () => {
    // 5m and 100m: kubelet sets 105m for the pod, and the minimum quota of 1000 instead of 500 for the first container.
    const state = pod('max', 10_500, [container('a', 'max', 1000), container('b', 'max', 10_000)]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toStrictEqual({ cpu: { quota: 30_000, period: PERIOD } });
  });

  test('keeps a pod CPU limit that is below the sum by more than minimum quotas explain', () => {
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

  test('compares quotas of different periods by their rate', () => {
    const other = { ...container('b', 'max'), cpu: { quota: microseconds(5000), period: microseconds(20_000) } };
    const state = pod('max', 35_000, [container('a', 'max', 10_000), other]);
    const limits = podLimitsFor(state, [{ id: 'a', cpu: { quota: microseconds(20_000), period: PERIOD } }]);
    expect(limits).toStrictEqual({ cpu: { quota: 45_000, period: PERIOD } });
  });
});

describe('too large sums of limits', () => {
  const largest = bytes(Number.MAX_SAFE_INTEGER - 4095);
  const rejection = (file: string) =>
    expect.objectContaining({ reason: 'INVALID_VALUE', context: expect.objectContaining({ file }) as object }) as Error;

  test('rejects a sum of limits that is too large, for memory and for CPU', () => {
    const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
    expect(() => podLimitsFor(state, [{ id: 'a', memory: largest }])).toThrow(rejection('memory.max'));
    const quota = microseconds(2 ** 44 - 1);
    expect(() => podLimitsFor(state, [{ id: 'a', cpu: { quota, period: PERIOD } }])).toThrow(rejection('cpu.max'));
  });

  test('does not compute the sum of limits for a pod without limits', () => {
    const state = pod('max', 'max', [container('a', 100, 10_000), container('b', 200, 20_000)]);
    expect(podLimitsFor(state, [{ id: 'a', memory: largest }])).toEqual({});
  });
});

describe('a pod limit that the kernel has rounded', () => {
  const rounded = (sizes: readonly number[], podSize: number, overhead = 0): PodState => ({
    ...pod(
      'max',
      'max',
      sizes.map((size, index) => ({ ...container(`c${index}`, 1), memory: inPages(bytes(size)) })),
    ),
    memory: inPages(bytes(podSize)),
    overhead: { ...NO_OVERHEAD, memory: bytes(overhead) },
  });

  test('a rounded pod limit is tight although the overhead is not a whole number of pages', () => {
    // The kernel rounds 100M down by less than the page by which it rounds the pod's 230M.
    const state = rounded([100e6], 230e6, 130e6);
    expect(isMemoryTight(state)).toBe(true);
    expect(podLimitsFor(state, [{ id: 'c0', memory: bytes(200e6) }])).toStrictEqual({ memory: 330e6 });
  });

  test('needs no step when the unrounded limit is requested again', () => {
    const state = { ...rounded([100e6], 100e6), volumes: [{ name: 'v', size: bytes(100_003_840) }] };
    const containers = [{ id: 'c0', memory: bytes(100e6) }];
    const volumes = new Map([['v', bytes(100e6)]]);
    expect(podLimitsFor(state, containers)).toStrictEqual({});
    expect(plan(state, { memory: bytes(100e6), containers, call: 'none', volumes })).toEqual([]);
  });

  test('a rounded pod limit is tight within one page for each container and one for the overhead', () => {
    const odd = 10 * MiB + 4095;
    const state = rounded([odd, odd], 3 * odd, odd);
    expect(state.memory).toBe(30 * MiB + 2 * 4096);
    expect(isMemoryTight(state)).toBe(true);
    expect(podLimitsFor(state, [{ id: 'c0', memory: bytes(8 * MiB) }])).toStrictEqual({ memory: 28 * MiB + 4095 });
    const looser = { ...state, memory: bytes(30 * MiB + 3 * 4096) };
    expect(isMemoryTight(looser)).toBe(false);
    expect(podLimitsFor(looser, [{ id: 'c0', memory: bytes(8 * MiB) }])).toStrictEqual({});
  });

  test('a rounded pod limit slightly above the sum does not change if the sum does not change', () => {
    const state = { ...rounded([50 * MiB, 150 * MiB], 200 * MiB + 4096), cpu: cpu(30_002) };
    const containers = [container('c0', 50, 10_000), container('c1', 150, 20_000)];
    const trade = [container('c0', 100, 15_000), container('c1', 100, 15_000)];
    expect(podLimitsFor({ ...state, containers }, trade)).toStrictEqual({});
  });

  test('a rounded pod limit does not change when containers only move memory between them', () => {
    const state = rounded([500e6, 500e6], 1000e6);
    const changes = [400e6, 600e6].map((size, index) => ({ id: `c${index}`, memory: bytes(size) }));
    expect(podLimitsFor(state, changes)).toStrictEqual({});
  });
});

describe('the pod CPU limit', () => {
  test('does not raise a pod CPU limit that kubelet set below the sum when containers are lowered', () => {
    // 5m and 100m: kubelet sets 10500 for the pod, and 11000 for its containers. A new sum of 10900 is no reason to
    // raise it.
    const state = pod('max', 10_500, [container('a', 'max', 1000), container('b', 'max', 10_000)]);
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9900) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(10_000) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9500) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'b', cpu: cpu(9000) }])).toStrictEqual({ cpu: cpu(10_000) });
  });

  test('rounds the pod CPU limit up to whole microseconds', () => {
    const third = (id: string) => ({ ...container(id, 'max'), cpu: cpu(10_000, 30_000) });
    const state = pod('max', 100_000, [third('a'), third('b'), third('c')]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(20_000, 60_000) }])).toStrictEqual({});
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(20_000, 30_000) }])).toStrictEqual({ cpu: cpu(133_334) });
  });

  test("accepts a pod CPU limit equal to the kernel's maximum, and rejects a larger sum with both figures", () => {
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

  test('the pod CPU limit is never below the minimum quota', () => {
    const state = pod('max', 1000, [{ ...container('a', 'max'), cpu: cpu(10_000, 1_000_000) }]);
    expect(podLimitsFor(state, [{ id: 'a', cpu: cpu(5000, 1_000_000) }])).toStrictEqual({});
  });
});

describe('container that arrives', () => {
  const container = (id: string, memory: number, quota: number) => ({ id, memory: mi(memory), cpu: cpuOf(quota) });
  const podWith = (memory: number, quota: number): PodState => ({
    memory: mi(memory),
    cpu: cpuOf(quota),
    weight: undefined,
    overhead: { memory: bytes(0), cpu: cpuOf(0) },
    containers: [container('a', 100, 10_000), container('b', 200, 20_000)],
    volumes: [],
  });
  const update = (to: number, quota: number): ContainerStep => ({
    kind: 'container',
    id: 'a',
    memory: { from: mi(100), to: mi(to) },
    cpu: { from: cpuOf(10_000), to: cpuOf(quota) },
  });

  test.each([
    ['raises', 220, 15_000, container('a', 220, 15_000)],
    ['does not count as lower, where it lowers', 50, 5000, container('a', 100, 10_000)],
  ])('an unanswered update that may still arrive %s a limit', (_what, memory, quota, expected) => {
    const { containers } = ifTheyArrive(podWith(420, 35_000), [update(memory, quota)]);
    expect(containers).toEqual([expected, container('b', 200, 20_000)]);
  });

  test('ignores an unanswered update of a container that does not run', () => {
    const state = podWith(420, 35_000);
    expect(ifTheyArrive(state, [{ ...update(220, 15_000), id: 'c' }])).toEqual(state);
  });

  const unanswered = update(220, 15_000);
  const raised: readonly Step[] = [
    { kind: 'pod-memory', from: mi(300), to: mi(420) },
    { kind: 'pod-cpu', from: cpuOf(30_000), to: cpuOf(35_000) },
    unanswered,
  ];
  const left = (state: PodState, target: Parameters<typeof podStepsLeft>[1], steps = raised): Step[] =>
    podStepsLeft(state, target, {
      steps,
      unanswered: [unanswered],
      settled: [{ id: 'a', memory: mi(100), cpu: cpuOf(10_000) }],
    });

  test('KEP-1287: the pod limits are rolled back with an unanswered update to those that a later resize alone needs', () => {
    const containers = [container('b', 250, 30_000)];
    expect(left(podWith(420, 35_000), { memory: mi(470), cpu: cpuOf(45_000), containers })).toEqual([
      { kind: 'pod-memory', from: mi(350), to: mi(470) },
      { kind: 'pod-cpu', from: cpuOf(40_000), to: cpuOf(45_000) },
    ]);
  });

  test('pod limits keep the room for an unanswered update during a later resize that does not change them', () => {
    expect(left(podWith(420, 35_000), { containers: [] })).toEqual([
      { kind: 'pod-memory', from: mi(300), to: mi(420) },
      { kind: 'pod-cpu', from: cpuOf(30_000), to: cpuOf(35_000) },
    ]);
  });

  test('a pod limit that was loose before an unanswered update is rolled back to its loose value', () => {
    const containers = [container('b', 240, 20_000)];
    expect(left(podWith(450, 60_000), { memory: mi(460), containers }, [unanswered])).toEqual([
      { kind: 'pod-memory', from: mi(450), to: mi(460) },
    ]);
  });

  test('pod limits that a later request has set are not rolled back with an unanswered update', () => {
    expect(left(podWith(420, 35_000), { memory: mi(600), cpu: cpuOf(60_000), containers: [] })).toEqual([]);
  });

  test('a pod limit that another program has changed in the meantime is rolled back to the changed value', () => {
    const containers = [container('b', 250, 20_000)];
    const [step] = left(podWith(430, 35_000), { memory: mi(470), containers });
    expect(step).toEqual({ kind: 'pod-memory', from: mi(430), to: mi(470) });
  });
});

describe('container limits compared with pod limits', () => {
  const state = pod(300, 30_000, [container('a', 100, 10_000), container('b', 200, 20_000)]);
  const memoryStep = (from: number | 'max') => ({
    kind: 'pod-memory' as const,
    from: from === 'max' ? from : bytes(from),
    to: bytes(400 * MiB),
  });
  const cpuStep = (from: number | 'max') => ({ kind: 'pod-cpu' as const, from: cpu(from), to: cpu(40_000) });

  test.each([
    ['no memory limit', memoryStep('max'), true],
    ['exactly the sum', memoryStep(300 * MiB), true],
    ['a page less for each container', memoryStep(300 * MiB - 2 * 4096), true],
    ['more than a page less for each container', memoryStep(300 * MiB - 2 * 4096 - 1), false],
    ['no CPU limit', cpuStep('max'), true],
    ['exactly the sum of CPU', cpuStep(30_000), true],
    ['the minimum quota less for each container', cpuStep(30_000 - 2 * 1001), true],
    ['more than the minimum quota less for each container', cpuStep(30_000 - 2 * 1001 - 1), false],
  ])('fitsPreviousLimit compares the container limits with a previous pod limit of: %s', (_name, step, expected) => {
    expect(fitsPreviousLimit(state, step)).toBe(expected);
  });

  test('fitsPreviousLimit is false for any pod limit if a container has no limit', () => {
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
    ['unchanged limits', [memoryOf('a', 100), cpuOf('a', 10_000)], false, false],
    ['a lower memory limit', [memoryOf('a', 101)], false, false],
    ['a higher memory limit', [memoryOf('b', 200), memoryOf('a', 99)], true, false],
    ['a first memory limit', [memoryOf('a', 'max')], true, false],
    ['a lower CPU limit', [cpuOf('a', 10_001)], false, false],
    ['a higher CPU limit', [cpuOf('b', 20_000), cpuOf('a', 9999)], false, true],
    ['a first CPU limit', [cpuOf('a', 'max')], false, true],
    ['a removed container', [memoryOf('c', 1), cpuOf('c', 1000)], false, false],
  ])('hasRaisedContainer compares the container limits with the previous ones: %s', (_name, updates, memory, ofCpu) => {
    expect(hasRaisedContainer(state, updates, 'pod-memory')).toBe(memory);
    expect(hasRaisedContainer(state, updates, 'pod-cpu')).toBe(ofCpu);
  });

  test.each([
    ['the present limits', [memoryOf('a', 100), cpuOf('a', 10_000)], true],
    ['lower limits', [memoryOf('a', 50), cpuOf('b', 5000)], true],
    ['a higher memory limit', [memoryOf('a', 101)], false],
    ['no memory limit', [memoryOf('b', 'max')], false],
    ['a higher CPU limit', [cpuOf('a', 13_000)], false],
    ['no CPU limit', [cpuOf('b', 'max')], false],
    ['a lower memory limit and a higher CPU limit', [{ ...memoryOf('a', 50), ...cpuOf('a', 13_000) }], false],
    ['a higher memory limit and a lower CPU limit', [{ ...cpuOf('a', 5000), ...memoryOf('a', 101) }], false],
    ['the limits of a removed container', [memoryOf('c', 500), cpuOf('c', 50_000)], true],
  ])(
    'KEP-1287: a tight pod limit has room for a pending rollback only if it raises no container: rollback to %s',
    (_name, updates, expected) => {
      expect(updates.every((update) => fitsRolledBack(state, update))).toBe(expected);
    },
  );

  test('fitsRolledBack needs no room in a pod whose limits are below the sum, unless a container is raised', () => {
    const below = { ...state, memory: bytes(100 * MiB), cpu: cpu(10_000) };
    expect(fitsRolledBack(below, { ...memoryOf('a', 100), ...cpuOf('a', 10_000) })).toBe(true);
    expect(fitsRolledBack(below, memoryOf('a', 101))).toBe(false);
  });

  test('fitsRolledBack compares with the room that lower limits have left for the container', () => {
    const lower = { ...state, containers: [container('a', 250, 25_000), container('b', 50, 4000)] };
    expect(fitsRolledBack(lower, { ...memoryOf('b', 50), ...cpuOf('b', 5000) })).toBe(true);
    expect(fitsRolledBack(lower, memoryOf('b', 200))).toBe(false);
    expect(fitsRolledBack(lower, cpuOf('b', 20_000))).toBe(false);
  });

  test('fitsRolledBack is true for a pod without limits', () => {
    const unlimited = { ...state, memory: 'max' as const, cpu: cpu('max') };
    expect(fitsRolledBack(unlimited, { ...memoryOf('a', 'max'), ...cpuOf('a', 'max') })).toBe(true);
  });

  test.each([
    ['which they exceed', 299, 27_000, [true, true]],
    ['which they exceed by rounding only', 300, 29_000, [false, false]],
  ])(
    'nextContainersExceed compares limits of the next sandbox with previous pod limits, %s',
    (_name, memory, quota, expected) => {
      const earlier = [memoryOf('earlier', 100), cpuOf('earlier', 10_000)];
      const steps = [
        { kind: 'pod-memory', from: bytes(memory * MiB), to: bytes(900 * MiB) },
        { kind: 'pod-cpu', from: cpu(quota), to: cpu(90_000) },
      ] as const;
      const next = { ...state, containers: [container('a', 100, 10_000), container('b', 200, 20_000)] };
      expect(steps.map((step) => nextContainersExceed(next, earlier, step))).toEqual(expected);
      expect(steps.map((step) => nextContainersExceed(next, [memoryOf('a', 1), cpuOf('b', 1000)], step))).toEqual([
        false,
        false,
      ]);
      const none = [container('a', 'max', 'max')];
      expect(steps.map((step) => nextContainersExceed({ ...next, containers: none }, earlier, step))).toEqual([
        false,
        false,
      ]);
    },
  );

  test('hasRaisedContainer is true if a limit was removed, but not if there was none before', () => {
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
