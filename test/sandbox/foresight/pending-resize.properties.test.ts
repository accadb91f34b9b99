import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Bytes, bytes } from '../../../src/core/quantities/numbers.ts';
import { boundIncrease, derivePendingResize, podAmounts } from '../../../src/sandbox/foresight/pending-resize.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { cases } from '../../support/property-cases.ts';
import {
  entryOf,
  type KnownContainer,
  type KnownPod,
  knownPods,
  limitOf,
  size,
  stateOf,
} from '../../support/resize/sources/known-pods.ts';

/** The limits when kubelet calls to raise the first app container, in a pod that has this limit then. */
function raise(view: '1.36' | '1.35', pod: KnownPod, to: Bytes, podLimit: Bytes) {
  const then = pod.containers.map((one): KnownContainer => (one.name === 'a0' ? { ...one, limit: to } : one));
  const admitted = stateOf(view, { ...pod, containers: then, podLimit });
  const before = pod.containers.find(({ name }) => name === 'a0')!.limit;
  const state = {
    ...admitted,
    containers: admitted.containers.map((one) => (one.id === 'a0' ? { ...one, memory: before } : one)),
  };
  const names = new Map(pod.containers.map(({ name }) => [name, name]));
  const [allocated, actuated] = [entryOf(view, then), entryOf(view, pod.containers)];
  const pending = derivePendingResize(state, { allocated, actuated, names });
  if (pending === undefined) throw new Error('no resize is pending');
  const asked = { id: 'a0', memory: to };
  const { memory = podLimit } = boundIncrease(podLimitsFor(state, [asked]), state, pending, asked);
  const sums = podAmounts(allocated, { state, names }, ({ memory: limit }) => limit);
  return { memory, sum: limitOf(then), sums };
}

/** A pod and a higher limit for its first app container. */
const raised = fc
  .tuple(knownPods, size)
  .map(([pod, more]) => ({ pod, to: bytes(pod.containers.find(({ name }) => name === 'a0')!.limit + more) }));

test.each(['1.36', '1.35'] as const)(
  'kubelet %s: a pod limit written for a raised container stays, whichever containers are init containers',
  (view) => {
    fc.assert(
      fc.property(raised, ({ pod, to }) => {
        const { sum } = raise(view, pod, to, pod.podLimit);
        fc.pre(sum >= pod.podLimit);
        expect(raise(view, pod, to, bytes(sum)).memory).toBe(sum);
      }),
      cases(2500),
    );
  },
);

test.each(['1.36', '1.35'] as const)(
  'kubelet %s: a container raised before its pod raises the pod to no more than a sum that kubelet could compute',
  (view) => {
    fc.assert(
      fc.property(raised, ({ pod, to }) => {
        const { memory, sums } = raise(view, pod, to, pod.podLimit);
        expect(memory).toBeLessThanOrEqual(Math.max(pod.podLimit, ...sums));
      }),
      cases(2500),
    );
  },
);
