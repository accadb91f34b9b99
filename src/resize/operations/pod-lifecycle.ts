import type { PodDescription } from '../../runtime/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import type { Log } from '../../observe/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { hasPodCgroup, podCgroup, readVolumes } from '../../sandbox/index.ts';
import { type DeletedPodsParts, forgetDeleted } from '../execute/index.ts';
import { type VolumePolicies, meetVolumes } from '../volumes/index.ts';
import type { PodOutcomes } from '../history/index.ts';
import type { PodJournal } from '../journal/index.ts';

export interface PodLifecycleParts extends DeletedPodsParts {
  readonly tree: CgroupTree;
  readonly policies: VolumePolicies;
  /** How the requests of each pod went, for its status. */
  readonly outcomes: PodOutcomes;
}

/** What an earlier shim, or an earlier sandbox of the pod, has left. */
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
  outcomes.allocate(pod.sandboxId, new Map(sizes));
}

/** What is journalled of a pod goes with it; not while its volumes are there, which another sandbox of it may use. */
export function forgetPodRecord(context: DeletedPodsParts, pod: PodDescription): void {
  const { journal, volumes, log } = context;
  const forget = async (): Promise<void> => {
    if (volumes.ofPod(pod.metadata.uid).length === 0) await journal.forget(pod);
    // Of pods whose volumes were still there when they went: kubelet has unmounted them by now.
    await forgetDeleted(context);
  };
  forget().catch((error: unknown) => {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'journal entry of a removed pod not deleted');
  });
}

/** Loads what remounting takes before it is needed, on nodes that have something to remount. Says once how it is done. */
export function prepareRemounts(volumes: MemoryVolumes, log: Log): void {
  if (volumes.isPrepared) return;
  volumes.method().then(
    (method) => log.info({ method: method.kind }, 'remount method selected'),
    (error: unknown) => log.error({ error: messageOf(error) }, 'no remount method available'),
  );
}

/** First sight of a pod: how its volumes are sized, by its annotations and by how they are mounted now. */
export function learnPodVolumes(
  context: Pick<PodLifecycleParts, 'journal' | 'tree' | 'volumes' | 'policies' | 'outcomes' | 'log'>,
  pod: PodDescription,
): void {
  const { policies, outcomes, tree, volumes, log } = context;
  const faults = policies.annotate(pod.sandboxId, pod.annotations);
  outcomes.meet(
    pod.sandboxId,
    faults.map(({ message }) => message),
  );
  restoreVolumes(context, pod);
  for (const error of faults) log.warn({ pod: pod.sandboxId, error: error.message }, 'invalid annotation ignored');
  try {
    if (!hasPodCgroup(pod)) return;
    const { memoryMax } = tree.readLimitsNow(podCgroup(pod));
    const mounted = readVolumes(volumes, pod);
    meetVolumes(context, pod, mounted, memoryMax);
    if (mounted.length > 0) prepareRemounts(volumes, log);
  } catch (error) {
    // A pod that has ended, say. Should it be resized after all, its volumes are met then.
    log.debug({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes of a new pod not read');
  }
}
