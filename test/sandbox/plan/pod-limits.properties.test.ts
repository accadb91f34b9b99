import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { any, called, derived, holds } from '../../support/resize/plan-cases.ts';
import {
  type Resource,
  countOf,
  excess,
  isUnlimited,
  needs,
  podLimitOf,
  resources,
} from '../../support/resize/pod-rules.ts';
import { PAGE } from '../../support/resize/pods.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { isMemoryTight } from '../../../src/sandbox/plan/pod-limits.ts';

/** Whether a sidecar or an init container has a limit before, and none after. */
function losesLimit(state: PodState, end: PodState, resource: Resource): boolean {
  const hasLimit = ({ memory, cpu }: LiveContainer): boolean => (resource === 'memory' ? memory : cpu.quota) !== 'max';
  const uncounted = new Set(
    state.declared?.containers.flatMap(({ id, kind }) => (kind === 'sidecar' || kind === 'init' ? [id] : [])),
  );
  return state.containers.some(
    (one) =>
      uncounted.has(one.id) && hasLimit(one) && end.containers.some((then) => then.id === one.id && !hasLimit(then)),
  );
}

describe('a pod limit that follows its containers', () => {
  /** The largest difference by which rounding leaves a tight limit above the sum. */
  const rounding = (state: PodState, resource: Resource): number =>
    resource === 'memory' ? countOf(state) * PAGE : 3 * countOf(state);
  /** The largest amount by which kubelet's limit is below the sum: containers have at least the minimum quota. */
  const least = (state: PodState, resource: Resource): number =>
    resource === 'memory'
      ? 0
      : 3 * (countOf(state) + 1000 * state.containers.filter(({ cpu }) => cpu.quota === 1000).length);

  test('KEP-1287: a tight pod limit stays tight when it follows its containers', () => {
    holds(4000, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        const slack = -excess(state, resource);
        if (slack < 0 || slack > rounding(state, resource)) continue;
        if (isUnlimited(end, resource)) expect(podLimitOf(end, resource)).toBe('max');
        else {
          // The pod limit is not lowered when a sidecar loses its limit: it may take more then, and is 0 to kubelet.
          const most = losesLimit(state, end, resource) ? Infinity : rounding(state, resource);
          expect(-excess(end, resource)).toSatisfy((left: number) => left >= 0 && left <= most);
        }
      }
    });
  });

  test('KEP-1287: a loose pod limit is raised as far as needed if the sum exceeds it, and is never lowered', () => {
    holds(4000, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        if (-excess(state, resource) <= rounding(state, resource)) continue;
        const [before, after] = [podLimitOf(state, resource), podLimitOf(end, resource)];
        if (before === 'max' || needs(end, resource) <= before) expect(after).toBe(before);
        else if (after !== 'max')
          expect(after - needs(end, resource)).toSatisfy(
            (left: number) => left >= 0 && left <= rounding(state, resource),
          );
        else expect(isUnlimited(end, resource)).toBe(true);
      }
    });
  });

  test('a pod limit below the sum does not change', () => {
    holds(2500, fc.oneof(derived, called), ({ state, end }) => {
      for (const resource of resources) {
        if (excess(state, resource) <= least(state, resource)) continue;
        expect(podLimitOf(end, resource)).toBe(podLimitOf(state, resource));
      }
    });
  });

  test('a pod limit is tight only if it is neither above nor below the sum, apart from rounding', () => {
    holds(4000, any, ({ state }) => {
      const slack = -excess(state, 'memory');
      expect(isMemoryTight(state)).toBe(state.memory === 'max' || (slack >= 0 && slack <= rounding(state, 'memory')));
    });
  });
});
