import { type Bytes, cpuWeight, type Limit } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { EntryLimits, PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { derivePendingResize } from '../../../src/sandbox/foresight/pending-resize.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../quantities/mebibytes.ts';
import { NO_OVERHEAD, PERIOD } from './pods.ts';

/** Pods in the middle of a resize: kubelet's entries and the kernel's values. */

/** An entry of kubelet for containers with these limits in mebibytes. */
export const entry = (
  memory: Readonly<Record<string, number | undefined>>,
  more: Partial<PodEntry> = {},
): PodEntry => ({
  containers: new Map(
    Object.entries(memory).map(([name, mebibytes]): [string, EntryLimits] => [
      name,
      mebibytes === undefined ? {} : { memory: mi(mebibytes) },
    ]),
  ),
  pod: undefined,
  isComplete: true,
  ...more,
});

/** A pod state with containers `id-a`, `id-b` that have these limits, and with this limit of the pod. */
export const state = (memory: Readonly<Record<string, number>>, pod: number | 'max'): PodState => ({
  memory: pod === 'max' ? 'max' : mi(pod),
  cpu: { quota: 'max', period: PERIOD },
  weight: cpuWeight(39),
  overhead: NO_OVERHEAD,
  containers: Object.entries(memory).map(([name, mebibytes]) => ({
    id: `id-${name}`,
    memory: mi(mebibytes),
    cpu: { quota: 'max', period: PERIOD },
  })),
  volumes: [],
});
export const names = new Map(['a', 'b', 'c'].map((name) => [`id-${name}`, name]));

/** Returns the limits of the pending resize in mebibytes. */
export function pendingMemory(
  now: PodState,
  allocated: PodEntry | undefined,
  actuated?: PodEntry,
): { pod: number | undefined; containers: Record<string, number | undefined> } | undefined {
  const found = derivePendingResize(now, { allocated, actuated, names });
  const inMebi = (limit: Limit<Bytes> | undefined): number | undefined =>
    limit === undefined ? undefined : Number(limit) / MiB;
  return (
    found && {
      pod: inMebi(found.pod.memory),
      containers: Object.fromEntries([...found.containers].map(([id, { memory }]) => [id, inMebi(memory)])),
    }
  );
}
