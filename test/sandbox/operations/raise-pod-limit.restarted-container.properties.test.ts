import fc from 'fast-check';
import { expect, test } from 'vitest';
import { countedLimits, restartedContainer } from '../../../src/sandbox/operations/raise-pod-limit.ts';
import { podLimitsBetween, podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { cases } from '../../support/property-cases.ts';
import { PERIOD } from '../../support/resize/pods.ts';
import { type KnownPod, knownPods, size, stateOf } from '../../support/resize/sources/known-pods.ts';

// An app container exits with 0, another one is resized, and the first one restarts with its previous limits.

/** Returns the pod as its containers are after these changes of one of them. */
const withContainer = (
  { containers, ...pod }: KnownPod,
  name: string,
  change: Partial<KnownPod['containers'][number]>,
): KnownPod => ({ ...pod, containers: containers.map((one) => (one.name === name ? { ...one, ...change } : one)) });

test.each(['spec', '1.36', '1.35', 'runtime'] as const)(
  'with kinds and limits from source %s, the pod limit has room for a container that restarts after it ended with 0',
  (view) => {
    let raised = 0;
    fc.assert(
      fc.property(
        knownPods.filter(({ containers }) => containers.some(({ name }) => name === 'a1')),
        size,
        (created, to) => {
          const pod = withContainer(created, 'a1', { state: 'ended' });
          const { limit } = pod.containers.find(({ name }) => name === 'a1')!;
          const resized = podLimitsFor(stateOf(view, pod), [{ id: 'a0', memory: to }]).memory ?? pod.podLimit;
          if (resized === 'max') throw new Error('the limit of the pod is gone');
          const ended = { ...withContainer(pod, 'a0', { limit: to }), podLimit: resized };

          const stored = { memory: limit, cpu: { quota: 'max' as const, period: PERIOD } };
          const before = countedLimits(stateOf(view, ended).declared!, 'a1', stored);
          const restarted = withContainer(ended, 'a1', { state: 'created' });
          const container = { containerId: 'a1', name: 'a1' };
          const change = restartedContainer(stateOf(view, restarted), container, { before, after: stored });
          const { memory = resized } = podLimitsBetween(change.before, change.after);

          if (memory !== resized) raised++;
          const seen = restarted.containers.filter(
            ({ kind, state }) => kind !== 'init' && (view !== 'runtime' || !['declared', 'ended'].includes(state)),
          );
          expect(memory).toBeGreaterThanOrEqual(seen.reduce((sum, one) => sum + one.limit, 0));
          expect(memory).toBeGreaterThanOrEqual(resized);
        },
      ),
      cases(2500),
    );
    // The other sources always count the ended container.
    if (view === 'runtime') expect(raised).toBeGreaterThan(0);
    else expect(raised).toBe(0);
  },
);
