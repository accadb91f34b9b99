import { describe, expect, test } from 'vitest';
import { type PodAmounts, amountsOf } from './amounts.ts';
import { type Group, groups, matrixCases } from './cases.ts';
import { qosClass } from './kubelet-values.ts';

/** How long the KEP's lists are. */
const lengths: Record<Group, number> = {
  'Guaranteed, one container': 7,
  'Burstable, CPU and memory': 18,
  'Burstable, CPU only': 3,
  'Burstable, memory only': 3,
  BestEffort: 2,
  'Guaranteed, three containers': 10,
  Sidecars: 3,
};

test.each(groups)('%s: as many cases as the KEP has, each under a name of its own', (group) => {
  const titles = matrixCases.filter((each) => each.group === group).map(({ title }) => title);
  expect(new Set(titles).size).toBe(lengths[group]);
  expect(titles).toHaveLength(lengths[group]);
});

describe.each(matrixCases)('$group: $title', ({ group, title, containers, start, stages }) => {
  const points = [start, ...stages];

  test('is of its class', () => {
    const kind = title.startsWith('Add memory') ? 'burstable' : group.split(',')[0]!.toLowerCase();
    expect(qosClass(containers, start)).toBe(kind === 'sidecars' ? 'guaranteed' : kind);
  });

  test('every stage names all containers, changes something, and asks for no more than it allows', () => {
    for (const [at, point] of points.entries()) {
      expect(Object.keys(point).sort()).toEqual(containers.map(({ name }) => name).sort());
      if (at > 0) expect(point).not.toEqual(points[at - 1]);
      for (const { cpu, memory } of Object.values(point)) {
        for (const { request = 0, limit = Infinity } of [cpu ?? {}, memory ?? {}])
          expect(request).toBeLessThanOrEqual(limit);
      }
    }
  });
});

test.each(matrixCases.filter(({ title }) => title.startsWith('Increase, decrease')))(
  '$group: $title: goes up and then below the start',
  ({ containers, start, stages }) => {
    const total = (point: PodAmounts): number =>
      containers.reduce((sum, { name }) => {
        const { cpu = {}, memory = {} } = amountsOf(point, name);
        return sum + (cpu.request ?? 0) + (cpu.limit ?? 0) + (memory.request ?? 0) + (memory.limit ?? 0);
      }, 0);
    const [first, up, down] = [start, ...stages].map(total);
    expect(up).toBeGreaterThan(first!);
    expect(down).toBeLessThan(first!);
  },
);
