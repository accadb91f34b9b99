import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { container, pod, texts } from '../../support/resize/plan-pods.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { plan } from '../../../src/sandbox/plan/steps.ts';

describe('the plan for volumes', () => {
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

  // The table of docs/resize.md: the order of volume and limit.
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
  ] as const)(
    'orders the steps for the direction of the volume: %s, and of the limit: %s',
    (_volume, _limit, memory, sizes, expected) => {
      expect(texts(plan(withVolumes(200), target(memory, sizes)))).toEqual(expected);
    },
  );

  test('shrinks volumes before all cgroup steps, and grows volumes after them', () => {
    expect(texts(plan(withVolumes(200), target(300, { big: 100, small: 250 })))).toEqual([
      `volume big ${200 * M} -> ${100 * M}`,
      `pod memory.max ${200 * M} -> ${300 * M}`,
      'runtime',
      `volume small ${100 * M} -> ${250 * M}`,
    ]);
  });
});
