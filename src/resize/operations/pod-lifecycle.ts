import type { PodDescription } from '../../runtime/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { hasPodCgroup, newestSandbox, podCgroup, readVolumes } from '../../sandbox/index.ts';
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

/**
 * Deletes the journal entry of a removed sandbox, unless the pod's volumes still exist, or its folder and an unfinished transaction:
 * another sandbox of the pod may use its volumes and its cgroup. If the registry knows another sandbox, the entry goes to the newest one:
 * kubelet removes an ended sandbox, and the pod continues in the next.
 */
export function forgetPodRecord(parts: DeletedPodsParts, pod: PodDescription): void {
  const { registry, journal, log } = parts;
  const forget = async (): Promise<void> => {
    const newest = newestSandbox(registry, pod.metadata.uid);
    if (newest !== undefined) await journal.move(pod.sandboxId, newest);
    else if (!isLeftToNext(parts, pod)) await journal.forget(pod);
    // Also pods whose volumes still existed when they were removed: kubelet has unmounted them by now.
    await forgetDeleted(parts);
  };
  forget().catch((error: unknown) => {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'journal entry of a removed pod not deleted');
  });
}

const isLeftToNext = ({ journal, volumes }: DeletedPodsParts, pod: PodDescription): boolean =>
  volumes.ofPod(pod.metadata.uid).length > 0 || (journal.isUnfinished(pod) && volumes.hasPodFolder(pod.metadata.uid));

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
    const mounted = readVolumes(volumes, pod);
    // Most pods have none, and a start learns all pods of the node.
    if (mounted.length === 0) return;
    observeVolumes(parts, pod, mounted, tree.readMemoryMax(podCgroup(pod)));
    prepareRemounts(volumes, log);
  } catch (error) {
    // The pod may have ended. A later resize reads its volumes.
    log.debug({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes of a new pod not read');
  }
}
