import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Bytes, CpuMax, Limit } from '../../../src/core/quantities/numbers.ts';
import { compareLimits } from '../../../src/sandbox/plan/amounts.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import type { Step } from '../../../src/sandbox/plan/step.ts';
import { plan, reversed } from '../../../src/sandbox/plan/steps.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { any, asked, called, derived, expectWithin, holds, undone } from '../../support/resize/plan-cases.ts';
import type { Resource } from '../../support/resize/pods.ts';
import {
  apply,
  containersSum,
  directionInSum,
  inPages,
  PERIOD,
  podDirection,
  resources,
  upToPages,
} from '../../support/resize/pods.ts';

// The rules of docs/resize.md, each on thousands of random pods.

type Undoable = Exclude<Step, { kind: 'runtime' }>;

describe('sums of limits after every step', () => {
  test("KEP-1287: after every step, the sum of the containers' limits is within a finite pod limit that follows them", () => {
    holds(5000, derived, ({ states }) => expectWithin(states, 'derived'));
  });

  test("after every step, the sum of the containers' limits is within a finite requested pod limit", () => {
    holds(5000, asked, ({ states }) => expectWithin(states, 'requested'));
  });

  test('KEP-1287: a rollback from any step keeps the sum of the limits within a finite pod limit and ends in the initial state', () => {
    holds(4000, any, ({ state, states, steps }) => {
      expectWithin(undone(states.at(-1)!, steps), 'requested');
      // Rolling back a step restores the state before it, so a rollback from any step passes through the same states.
      for (const [at, step] of steps.entries()) {
        if (!isDeepStrictEqual(apply(states[at + 1]!, reversed(step as Undoable)), states[at]))
          expect.fail(`the rollback of step ${at + 1} does not lead to the state before it`);
      }
      if (!isDeepStrictEqual(undone(states.at(-1)!, steps).at(-1), state))
        expect.fail('the rollback does not lead to the initial state');
    });
  });

  test('the sum of the limits is within the pod limit around a forwarded update, also in a rollback before the call', () => {
    holds(5000, called, ({ state, states, steps }) => {
      expectWithin(states, 'derived');
      const done = steps.slice(
        0,
        steps.findIndex(({ kind }) => kind === 'runtime'),
      );
      const back = undone(states[done.length]!, done);
      expectWithin([...back].reverse(), 'requested');
      if (!isDeepStrictEqual(back.at(-1), state)) expect.fail('the rollback does not lead to the initial state');
    });
  });
});

describe('the end of a plan', () => {
  test('KEP-1287: at the end of a plan, all requested values are set and all other values are unchanged', () => {
    holds(3000, any, ({ state, target, end }) => {
      const { memory = state.memory, cpu = state.cpu, weight = state.weight } = target;
      const containers = state.containers.map((container): LiveContainer => {
        const wanted = { ...container, ...target.containers?.find(({ id }) => id === container.id) };
        // Shares that were not read cannot be restored, so they are not changed.
        const { shares, ...limits } = { ...wanted, memory: inPages(wanted.memory), cpu: normalized(wanted.cpu) };
        const read = container.shares === undefined || shares === undefined ? limits : { ...limits, shares };
        return withinQuota(read);
      });
      const volumes = state.volumes.map(({ name, size }) => ({
        name,
        size: upToPages(target.volumes.get(name) ?? size),
      }));
      const found = { ...end, containers: end.containers.map((entry) => ({ ...entry, cpu: normalized(entry.cpu) })) };
      const wanted = { ...state, memory: inPages(memory), cpu: normalized(cpu), weight, containers, volumes };
      expect({ ...found, cpu: normalized(end.cpu) }).toEqual(withinQuota(wanted));
    });
  });

  test('a second plan for the same target has no steps', () => {
    holds(3000, any, ({ target, end }) => {
      expect(plan(end, target)).toEqual([]);
    });
  });

  test('a second plan for the same containers does not change the pod limit', () => {
    holds(3000, derived, ({ target, end }) => {
      const { containers = [], volumes } = target;
      expect(plan(end, { ...podLimitsFor(end, containers), containers, call: 'none', volumes })).toEqual([]);
    });
  });
});

/** The kernel has no burst above the quota. */
const withinQuota = <Group extends Pick<LiveContainer, 'burst' | 'cpu'>>(group: Group): Group =>
  group.burst === undefined || group.cpu.quota === 'max' || group.burst <= group.cpu.quota
    ? group
    : { ...group, burst: group.cpu.quota };

/** A CPU limit without its period if it has no quota: the period has no effect then. */
const normalized = (cpu: CpuMax): CpuMax => (cpu.quota === 'max' ? { ...cpu, period: PERIOD } : cpu);

describe('the message of a failed property', () => {
  const printed = (cases: typeof any, holds: (steps: readonly Step[]) => boolean): string =>
    fc.defaultReportMessage(
      fc.check(
        fc.property(cases, ({ steps }) => holds(steps)),
        { numRuns: 5000, seed: 1 },
      ),
    ) ?? '';
  const changesPod = ({ kind }: Step): boolean => kind === 'pod-memory';

  test('a failed property of a resize shows the smallest failing resize as readable text', () => {
    expect(printed(derived, (steps) => !steps.some(changesPod))).toContain(
      [
        'pod: memory 16Mi, cpu 1000/100000, overhead 0 0/100000',
        '  c0: memory 16Mi, cpu 1000/100000',
        'target: memory 32Mi',
        '  c0: memory 32Mi',
        'steps:',
        '  pod memory.max 16Mi -> 32Mi',
        '  container c0 memory.max 16Mi -> 32Mi',
      ].join('\n'),
    );
  });

  test('a failed property of a container update shows the smallest failing update as readable text', () => {
    expect(printed(called, (steps) => !steps.some(changesPod))).toContain(
      [
        'pod: memory 16Mi, cpu 1000/100000, overhead 0 0/100000',
        '  c0: memory 16Mi, cpu 1000/100000',
        'target: memory max',
        '  c0: memory max',
        'steps:',
        '  pod memory.max 16Mi -> max',
        '  runtime',
      ].join('\n'),
    );
  });
});

describe('the order of a plan', () => {
  test('KEP-6030: a plan shrinks volumes first, then changes the cgroups, and grows volumes last', () => {
    holds(2000, any, ({ steps }) => {
      const stage = steps.map((step) => (step.kind !== 'volume' ? 1 : step.to < step.from ? 0 : 2));
      expect(stage).toEqual([...stage].sort((a, b) => a - b));
    });
  });

  test('KEP-1287: a plan has all decreases of containers before all increases', () => {
    holds(2000, any, ({ state, end, containerSteps }) => {
      const ways = containerSteps.map((step) =>
        resources.map((resource) => directionInSum(state, end, step, resource)),
      );
      for (const way of ways)
        expect(Math.min(...way) * Math.max(...way), 'an update that raises and lowers').not.toBe(-1);
      const gains = ways.map((way) => way.includes(1));
      if (gains.includes(true)) expect(ways.slice(gains.indexOf(true)).flat()).not.toContain(-1);
    });
  });

  test('KEP-1287: a container gets one update, or two only if its CPU and memory go opposite ways', () => {
    holds(2000, any, ({ state, end, containerSteps }) => {
      for (const { id } of state.containers) {
        const own = containerSteps.filter((step) => step.id === id);
        const ways = own.flatMap((step) => resources.map((resource) => directionInSum(state, end, step, resource)));
        expect(own.length).toBeLessThanOrEqual(ways.includes(1) && ways.includes(-1) ? 2 : 1);
      }
    });
  });

  test('a plan raises the pod limit before the containers change, and lowers it after', () => {
    holds(2000, any, ({ steps }) => {
      for (const resource of resources) {
        const [at, way] = podStep(steps, resource);
        const [first, last] = [steps.findIndex(isContainer), steps.findLastIndex(isContainer)];
        if (way === undefined || first === -1) continue;
        if (way > 0) expect(at).toBeLessThan(first);
        if (way < 0) expect(at).toBeGreaterThan(last);
      }
    });
  });

  test("KEP-1287: the pod limit is raised only if the containers' sum increases, and lowered only if it decreases", () => {
    holds(2500, derived, ({ state, end, steps }) => {
      for (const resource of resources) {
        const [, way] = podStep(steps, resource);
        const change = Math.sign(containersSum(end, resource) - containersSum(state, resource));
        expect([undefined, change === 0 ? undefined : change], resource).toContain(way);
      }
    });
  });
});

const isContainer = ({ kind }: Step): boolean => kind === 'container';

/** Returns the index of the step that changes the pod's own limit, and the direction. */
function podStep(steps: readonly Step[], resource: Resource): readonly [number, number | undefined] {
  const at = steps.findIndex((step) => podDirection(step, resource) !== undefined);
  return [at, at === -1 ? undefined : podDirection(steps[at]!, resource)];
}

describe('a volume in a plan', () => {
  test('a volume that fits a limit at the start and at the end of a plan does not exceed it in between', () => {
    holds(4000, any, ({ states, state, end, steps }) => {
      const all = [...states, ...undone(end, steps)];
      const limitsOf = (at: PodState): Limit<Bytes>[] => [at.memory, ...at.containers.map(({ memory }) => memory)];
      const fits = (at: PodState, volume: number, limit: number): boolean =>
        compareLimits(at.volumes[volume]!.size, limitsOf(at)[limit]!) <= 0;
      for (const [volume, { name }] of state.volumes.entries()) {
        for (const limit of limitsOf(state).keys()) {
          if (!fits(state, volume, limit) || !fits(end, volume, limit)) continue;
          const at = all.findIndex((between) => !fits(between, volume, limit));
          if (at !== -1) expect.fail(`${name} is larger than a limit after ${at} steps`);
        }
      }
    });
  });
});
