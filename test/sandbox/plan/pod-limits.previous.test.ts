import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { container, cpu, pod } from '../../support/resize/plan-pods.ts';
import {
  fitsPreviousLimit,
  fitsRolledBack,
  hasRaisedContainer,
  nextContainersExceed,
} from '../../../src/sandbox/plan/pod-limits.ts';

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
