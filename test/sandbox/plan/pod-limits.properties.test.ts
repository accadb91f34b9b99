import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isMemoryTight, podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { cases } from '../../support/property-cases.ts';
import { any, called, derived, holds } from '../../support/resize/plan-cases.ts';
import type { Resource } from '../../support/resize/pods.ts';
import { countOf, excess, isUnlimited, needs, PAGE, podLimitOf, resources } from '../../support/resize/pods.ts';
import type { KnownContainer } from '../../support/resize/sources/known-pods.ts';
import { knownPods, limitOf, size, stateOf } from '../../support/resize/sources/known-pods.ts';

/** Whether a sidecar or an init container loses its limit between the two states. */
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

// Properties without the pod's spec, on 30,000 random pods: kubelet knows more of a pod than the shim sees.

const sumOf = (containers: readonly KnownContainer[]): number => containers.reduce((sum, { limit }) => sum + limit, 0);

test.each(['1.36', '1.35', 'runtime'] as const)(
  'KEP-1287: with source %s, no memory update lowers the pod limit below the needs of the containers that the source counts',
  (view) => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(knownPods, size, (pod, to) => {
        // The first app container always runs.
        const then = pod.containers.map((one) => (one.name === 'a0' ? { ...one, limit: to } : one));
        const { memory = pod.podLimit } = podLimitsFor(stateOf(view, pod), [{ id: 'a0', memory: to }]);
        if (memory === 'max') throw new Error('the limit of the pod is gone');
        // The runtime does not report containers before their creation, and may not distinguish an init container that
        // has ended.
        const isSeen = ({ state }: KnownContainer): boolean =>
          view !== 'runtime' || !['declared', 'ended'].includes(state);
        if (memory < pod.podLimit) expect(memory, 'lowered').toBeGreaterThanOrEqual(limitOf(then.filter(isSeen)));
        const counted = then.filter((one) => one.kind !== 'init' && isSeen(one));
        expect(memory, 'the sum').toBeGreaterThanOrEqual(sumOf(counted));
        seen.add(memory < pod.podLimit ? 'lowered' : memory > pod.podLimit ? 'raised' : 'as it was');
      }),
      cases(2500),
    );
    expect([...seen].sort()).toEqual(['as it was', 'lowered', 'raised']);
  },
);
