import { expect, test } from 'vitest';
import { podRank } from '../../src/daemon/pod-resizes.ts';
import type { PodDescription } from '../../src/runtime/description.ts';
import type { PodSpec } from '../../src/sandbox/pods/pod-spec.ts';

const pod = { sandboxId: 's', uid: 'u', namespace: 'default', name: 'web' };
const rank = (spec: Partial<PodSpec> | undefined, cgroupParent?: string) =>
  podRank(
    {
      knownPod: (sandboxId: string) =>
        sandboxId === 's' && cgroupParent !== undefined ? ({ sandboxId, cgroupParent } as PodDescription) : undefined,
    },
    { of: () => spec as PodSpec | undefined },
    pod,
  );

test.each([
  ['the spec', { priority: 7, qosClass: 'Guaranteed' as const }, '/kubepods/burstable/podu', 7, true],
  ['the cgroup, where the spec has no class', { priority: 7, qosClass: undefined }, '/kubepods/podu', 7, true],
  ['the cgroup alone', undefined, '/kubepods.slice/kubepods-podu.slice', 0, true],
  ['the cgroup of another class', undefined, '/kubepods/burstable/podu', 0, false],
  ['nothing', undefined, undefined, 0, false],
])('priority and QoS class of a pod come from %s', (_, spec, cgroup, priority, isGuaranteed) => {
  expect(rank(spec, cgroup)).toEqual({ priority, isGuaranteed });
});
