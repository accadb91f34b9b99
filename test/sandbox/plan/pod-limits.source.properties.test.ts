import fc from 'fast-check';
import { expect, test } from 'vitest';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { cases } from '../../support/property-cases.ts';
import { type KnownContainer, knownPods, limitOf, size, stateOf } from '../../support/resize/sources/known-pods.ts';

// Properties without the pod's spec, on 30,000 random pods: kubelet knows more of a pod than the shim sees.

const sumOf = (containers: readonly KnownContainer[]): number => containers.reduce((sum, { limit }) => sum + limit, 0);

test.each(['1.36', '1.35', 'runtime'] as const)(
  'KEP-1287: with kinds and limits from source %s, no update lowers the pod limit below the needs of its containers',
  (view) => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(knownPods, size, (pod, to) => {
        // The first app container always runs.
        const then = pod.containers.map((one) => (one.name === 'a0' ? { ...one, limit: to } : one));
        const { memory = pod.podLimit } = podLimitsFor(stateOf(view, pod), [{ id: 'a0', memory: to }]);
        if (memory === 'max') throw new Error('the limit of the pod is gone');
        // The runtime does not report of what was not created, and may not tell an init container from one that is
        // done.
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
