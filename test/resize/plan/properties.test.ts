import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CpuMax } from '../../../src/core/quantities/index.ts';
import { any, asked, called, derived, expectWithin, holds, undone } from '../../support/resize/plan-cases.ts';
import {
  type Resource,
  containersSum,
  direction,
  excess,
  needs,
  podDirection,
  podLimitOf,
  resources,
} from '../../support/resize/pod-rules.ts';
import { PAGE, PERIOD, apply, inPages, upToPages } from '../../support/resize/pods.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pod-state.ts';
import type { Step } from '../../../src/resize/model/step.ts';
import { isMemoryTight, podLimitsFor } from '../../../src/resize/plan/pod-limits.ts';
import { plan } from '../../../src/resize/plan/steps.ts';
import { reversed } from '../../../src/resize/plan/reversed.ts';

// The sentences of docs/resize.md, each on thousands of random pods: 197,000 cases here.

type Undoable = Exclude<Step, { kind: 'runtime' }>;

describe('after every step', () => {
  test('no sum of limits is above a finite pod limit, when the pod limit goes with its containers', () => {
    holds(20_000, derived, ({ states }) => expectWithin(states, 'derived'));
  });

  test('no sum of limits is above a finite pod limit, when the pod limit is asked for', () => {
    holds(20_000, asked, ({ states }) => expectWithin(states, 'requested'));
  });

  test('of an undo from any step it holds as well, and the pod is as it was at the start', () => {
    holds(15_000, any, ({ state, states, steps }) => {
      expectWithin(undone(states.at(-1)!, steps), 'requested');
      // Each step taken back gives the very state before it: so an undo from any step goes back through the same states.
      for (const [at, step] of steps.entries()) {
        if (!isDeepStrictEqual(apply(states[at + 1]!, reversed(step as Undoable)), states[at]))
          expect.fail(`step ${at + 1} taken back does not give what was before it`);
      }
      if (!isDeepStrictEqual(undone(states.at(-1)!, steps).at(-1), state)) expect.fail('undone is not the start');
    });
  });

  test("of a plan around somebody else's update of a container it holds, and back from any step before the update", () => {
    holds(20_000, called, ({ state, states, steps }) => {
      expectWithin(states, 'derived');
      const done = steps.slice(
        0,
        steps.findIndex(({ kind }) => kind === 'runtime'),
      );
      const back = undone(states[done.length]!, done);
      expectWithin([...back].reverse(), 'requested');
      if (!isDeepStrictEqual(back.at(-1), state)) expect.fail('undone is not the start');
    });
  });
});

describe('at the end', () => {
  test('everything has what was asked for it, and what was not asked for is as it was', () => {
    holds(12_000, any, ({ state, target, end }) => {
      const { memory = state.memory, cpu = state.cpu, weight = state.weight } = target;
      const containers = state.containers.map((container): LiveContainer => {
        const wanted = { ...container, ...target.containers?.find(({ id }) => id === container.id) };
        // Shares that nobody has read cannot be taken back, so they are not changed.
        const { shares, ...limits } = { ...wanted, memory: inPages(wanted.memory), cpu: said(wanted.cpu) };
        return container.shares === undefined || shares === undefined ? limits : { ...limits, shares };
      });
      const volumes = state.volumes.map(({ name, size }) => ({
        name,
        size: upToPages(target.volumes.get(name) ?? size),
      }));
      const found = { ...end, containers: end.containers.map((entry) => ({ ...entry, cpu: said(entry.cpu) })) };
      expect({ ...found, cpu: said(end.cpu) }).toEqual({
        ...state,
        memory: inPages(memory),
        cpu: said(cpu),
        weight,
        containers,
        volumes,
      });
    });
  });

  test('the same target again has no steps', () => {
    holds(12_000, any, ({ target, end }) => {
      expect(plan(end, target)).toEqual([]);
    });
  });

  test('the same containerChanges again ask for no other pod limit', () => {
    holds(12_000, derived, ({ target, end }) => {
      const { containers = [], volumes } = target;
      expect(plan(end, { ...podLimitsFor(end, containers), containers, call: 'none', volumes })).toEqual([]);
    });
  });
});

/** Without a quota a period says nothing. */
const said = (cpu: CpuMax): CpuMax => (cpu.quota === 'max' ? { ...cpu, period: PERIOD } : cpu);

describe('what fails is printed as a pod that a person can read, and as small as it gets:', () => {
  const printed = (cases: typeof any, holds: (steps: readonly Step[]) => boolean): string =>
    fc.defaultReportMessage(
      fc.check(
        fc.property(cases, ({ steps }) => holds(steps)),
        { numRuns: 5000, seed: 1 },
      ),
    ) ?? '';
  const changesPod = ({ kind }: Step): boolean => kind === 'pod-memory';

  test('a resize', () => {
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

  test("somebody else's update of a container", () => {
    expect(printed(called, (steps) => !steps.some(changesPod))).toContain(
      [
        'pod: memory 16Mi, cpu 1000/100000, overhead 0 0/100000',
        '  c0: memory 16Mi, cpu 1000/100000',
        'target: memory 32Mi',
        '  c0: memory 32Mi',
        'steps:',
        '  pod memory.max 16Mi -> 32Mi',
        '  runtime',
      ].join('\n'),
    );
  });
});

describe('the order', () => {
  test('all volumes that shrink, then every other step, then all volumes that grow', () => {
    holds(8000, any, ({ steps }) => {
      const stage = steps.map((step) => (step.kind !== 'volume' ? 1 : step.to < step.from ? 0 : 2));
      expect(stage).toEqual([...stage].sort((a, b) => a - b));
    });
  });

  test('what any container loses comes before what any container gains', () => {
    holds(8000, any, ({ containerSteps }) => {
      const ways = containerSteps.map((step) => resources.map((resource) => direction(step, resource)));
      for (const way of ways) expect(Math.min(...way) * Math.max(...way), 'both ways in one update').not.toBe(-1);
      const gains = ways.map((way) => way.includes(1));
      if (gains.includes(true)) expect(ways.slice(gains.indexOf(true)).flat()).not.toContain(-1);
    });
  });

  test('one update for a container, two only when its memory and its CPU go opposite ways', () => {
    holds(8000, any, ({ state, containerSteps }) => {
      for (const { id } of state.containers) {
        const own = containerSteps.filter((step) => step.id === id);
        const ways = own.flatMap((step) => resources.map((resource) => direction(step, resource)));
        expect(own.length).toBeLessThanOrEqual(ways.includes(1) && ways.includes(-1) ? 2 : 1);
      }
    });
  });

  test("the pod's limit is raised before its containers change, and lowered after", () => {
    holds(8000, any, ({ steps }) => {
      for (const resource of resources) {
        const [at, way] = podStep(steps, resource);
        const [first, last] = [steps.findIndex(isContainer), steps.findLastIndex(isContainer)];
        if (way === undefined || first === -1) continue;
        if (way > 0) expect(at).toBeLessThan(first);
        if (way < 0) expect(at).toBeGreaterThan(last);
      }
    });
  });

  test("net increase: the pod's limit first; net decrease: it comes last; no net change: containers only", () => {
    holds(10_000, derived, ({ state, end, steps }) => {
      for (const resource of resources) {
        const [, way] = podStep(steps, resource);
        const change = Math.sign(containersSum(end, resource) - containersSum(state, resource));
        expect([undefined, change === 0 ? undefined : change], resource).toContain(way);
      }
    });
  });
});

const isContainer = ({ kind }: Step): boolean => kind === 'container';

/** Where the pod's own limit is changed, and which way. */
function podStep(steps: readonly Step[], resource: Resource): readonly [number, number | undefined] {
  const at = steps.findIndex((step) => podDirection(step, resource) !== undefined);
  return [at, at === -1 ? undefined : podDirection(steps[at]!, resource)];
}

describe('the pod limit that goes with its containers', () => {
  /** By how much rounding may leave a tight limit above the sum. */
  const rounding = ({ containers }: PodState, resource: Resource): number =>
    resource === 'memory' ? containers.length * PAGE : 3 * containers.length;
  /** By how much kubelet itself leaves it under the sum: the least quota of containers that have less CPU than that. */
  const least = ({ containers }: PodState, resource: Resource): number =>
    resource === 'memory'
      ? 0
      : 3 * (containers.length + 1000 * containers.filter(({ cpu }) => cpu.quota === 1000).length);

  test('stays tight when it is tight', () => {
    holds(15_000, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        const slack = -excess(state, resource);
        if (slack < 0 || slack > rounding(state, resource)) continue;
        const unlimited = end.containers.some(
          ({ memory, cpu }) => (resource === 'memory' ? memory : cpu.quota) === 'max',
        );
        if (unlimited) expect(podLimitOf(end, resource)).toBe('max');
        else expect(-excess(end, resource)).toSatisfy((left: number) => left >= 0 && left <= rounding(state, resource));
      }
    });
  });

  test('is raised when it is looser and the sum would pass it, as far as needed, and never lowered', () => {
    holds(15_000, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        if (-excess(state, resource) <= rounding(state, resource)) continue;
        const [before, after] = [podLimitOf(state, resource), podLimitOf(end, resource)];
        if (before === 'max' || needs(end, resource) <= before) expect(after).toBe(before);
        else if (after !== 'max')
          expect(after - needs(end, resource)).toSatisfy(
            (left: number) => left >= 0 && left <= rounding(state, resource),
          );
        else
          expect(end.containers.map(({ memory, cpu }) => (resource === 'memory' ? memory : cpu.quota))).toContain(
            'max',
          );
      }
    });
  });

  test('stays when it was set under the sum', () => {
    holds(10_000, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        if (excess(state, resource) <= least(state, resource)) continue;
        expect(podLimitOf(end, resource)).toBe(podLimitOf(state, resource));
      }
    });
  });

  test('is told from a looser one, and from one under the sum', () => {
    holds(4000, any, ({ state }) => {
      const slack = -excess(state, 'memory');
      expect(isMemoryTight(state)).toBe(state.memory === 'max' || (slack >= 0 && slack <= rounding(state, 'memory')));
    });
  });
});
