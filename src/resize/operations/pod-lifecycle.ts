import type { PodDescription } from '../../runtime/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { hasPodCgroup, podCgroup, readVolumes } from '../../sandbox/index.ts';
import { type DeletedPodsParts, forgetDeleted } from '../execute/index.ts';
import { type VolumePolicies, observeVolumes } from '../volumes/index.ts';
import type { PodOutcomes } from '../history/index.ts';
import type { PodJournal } from '../journal/index.ts';

export interface PodLifecycleParts extends DeletedPodsParts {
  readonly tree: CgroupTree;
  readonly policies: VolumePolicies;
  /** The outcomes of each pod's requests, for its status. */
  readonly outcomes: PodOutcomes;
}

/** Restores the volume records of a pod that an earlier run of the shim, or an earlier sandbox of the pod, has journalled. */
export function restoreVolumes(
  {
    policies,
    outcomes,
    journal,
  }: { readonly journal: PodJournal; readonly policies: VolumePolicies; readonly outcomes: PodOutcomes },
  pod: PodDescription,
): void {
  const records = journal.volumesOf(pod);
  policies.restore(pod.sandboxId, records);
  const sizes = [...records].flatMap(([name, { policy, source, mount }]): [string, Bytes][] => {
    if (source === 'seen') return [];
    const size = policy.kind === 'absolute' ? policy.size : mount?.size;
    return size === undefined ? [] : [[name, size]];
  });
  outcomes.setAllocated(pod.sandboxId, new Map(sizes));
}

/** Deletes the journal entry of a removed pod, unless its volumes still exist: another sandbox of the pod may use them. */
export function forgetPodRecord(parts: DeletedPodsParts, pod: PodDescription): void {
  const { journal, volumes, log } = parts;
  const forget = async (): Promise<void> => {
    if (volumes.ofPod(pod.metadata.uid).length === 0) await journal.forget(pod);
    // Also pods whose volumes still existed when they were removed: kubelet has unmounted them by now.
    await forgetDeleted(parts);
  };
  forget().catch((error: unknown) => {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'journal entry of a removed pod not deleted');
  });
}

/** Selects the remount method before it is needed, on nodes that have memory-backed volumes, and logs it once. */
export function prepareRemounts(volumes: MemoryVolumes, log: Log): void {
  if (volumes.isPrepared) return;
  volumes.method().then(
    (method) => log.info({ method: method.kind }, 'remount method selected'),
    (error: unknown) => log.error({ error: messageOf(error) }, 'no remount method available'),
  );
}

/** Learns how the volumes of a new pod are sized: from its annotations and from their mounts. */
export function learnPodVolumes(parts: PodLifecycleParts, pod: PodDescription): void {
  const { policies, outcomes, tree, volumes, log } = parts;
  const faults = policies.annotate(pod.sandboxId, pod.annotations);
  outcomes.addPod(
    pod.sandboxId,
    faults.map(({ message }) => message),
  );
  restoreVolumes(parts, pod);
  for (const error of faults) log.warn({ pod: pod.sandboxId, error: error.message }, 'invalid annotation ignored');
  try {
    if (!hasPodCgroup(pod)) return;
    const { memoryMax } = tree.readLimitsNow(podCgroup(pod));
    const mounted = readVolumes(volumes, pod);
    observeVolumes(parts, pod, mounted, memoryMax);
    if (mounted.length > 0) prepareRemounts(volumes, log);
  } catch (error) {
    // The pod may have ended. A later resize reads its volumes.
    log.debug({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes of a new pod not read');
  }
}
