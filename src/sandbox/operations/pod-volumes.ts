import { type Bytes, type Log, messageOf } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { volumeChanges } from '../foresight/pending-kubelet-resize.ts';
import type { Requester } from '../history/history-entry.ts';
import type { PodOutcomes } from '../history/outcomes.ts';
import type { PodJournal } from '../journal/pod-journal.ts';
import type { Node } from '../node.ts';
import { failureOf, fitsLater, passes, waitsForRecovery } from '../plan/failures.ts';
import { identityOf, isReplaced, lockKeyOf, newestSandbox } from '../pods/pod-identity.ts';
import { hasPodCgroup, podCgroup, readDeclaredPod, readVolumes } from '../pods/read-pod.ts';
import { limitsByName } from '../pods/volumes.ts';
import { forgetDeleted, tryRecoverPod } from '../transaction/recover.ts';
import { Transaction } from '../transaction/transaction.ts';
import { RETRY_DELAY_MS } from '../volumes/growth-timers.ts';
import { ofKubelet, type VolumePolicies, withoutOverdue } from '../volumes/policies.ts';
import { journalVolumes, observeVolumes } from '../volumes/volume-tracking.ts';

/**
 * KEP-6030: volumes grow after the memory limits. Schedules the growth of a pod's volumes for {@link GROW_DELAY_MS}
 * after the last update. Called at each update: it restarts the timer, or cancels it when the update has set the final
 * sizes.
 */
export function scheduleVolumeGrowth(node: Node, pod: PodDescription, isFinal: boolean): void {
  const { growth } = node;
  if (isFinal) growth.stop(pod.sandboxId);
  // Another update under the pod's lock meanwhile restarts the timer.
  else growth.restart(pod.sandboxId, postponed(node, pod));
}

export interface VolumeSizesOptions {
  /** Whether a timer has called this. Does nothing if the timer runs again once the pod's lock is held. */
  readonly isPostponed?: boolean;
  /** Default: the shim. */
  readonly requester?: Requester;
}

/**
 * Sets the volumes of a pod to the sizes for its present limits. A volume that stores too much to shrink is tried again
 * (KEP-6030), and does not prevent the resize of another. Never rejects: no caller waits, and the pod's next update
 * reads the volumes again.
 */
export async function applyVolumeSizes(
  node: Node,
  pod: PodDescription,
  { isPostponed = false, requester = { kind: 'shim' } }: VolumeSizesOptions = {},
): Promise<void> {
  // A pod without a cgroup of its own has no limit to derive a size from.
  if (!hasPodCgroup(pod)) return;
  try {
    await resizeVolumes(node, pod, isPostponed, requester);
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume sizes not applied');
    const failure = failureOf(error);
    if (fitsLater(failure) || passes(failure) || waitsForRecovery(failure)) applyLater(node, pod, requester);
  }
}

const postponed = (node: Node, pod: PodDescription) => (requester: Requester) =>
  void applyVolumeSizes(node, pod, { isPostponed: true, requester });

/** Applies the sizes again later, because no other call may come. A pod that has ended has no cgroup any more. */
function applyLater(node: Node, pod: PodDescription, requester: Requester): void {
  const { registry, tree, growth } = node;
  if (registry.knownPod(pod.sandboxId) === undefined || !tree.exists(podCgroup(pod))) return;
  growth.start(pod.sandboxId, postponed(node, pod), { requester, delayMs: RETRY_DELAY_MS });
}

/**
 * KEP-6030: a changed sizeLimit in the spec of a pod is a request of its own: the volume is resized without a resize of
 * limits. Never rejects.
 * @param isChanged whether another sizeLimit was known before
 */
export const applySizeLimits = (node: Node, pod: PodDescription, isChanged: boolean): Promise<void> =>
  applyVolumeSizes(node, pod, { requester: { kind: isChanged ? 'spec' : 'shim' } });

/**
 * Sets the volumes whose size is a share of a container that was just created, which may have other limits than its
 * predecessor of the same name. After a restart, volumes that may not grow yet do so {@link GROW_DELAY_MS} later. Does
 * not wait for a resize of the pod. Never rejects.
 * @param container its name
 */
export async function applyContainerShares(node: Node, pod: PodDescription, container: string): Promise<void> {
  if (!hasShareOf(node, pod, container)) return;
  const isBusy = node.lock.isHeld(lockKeyOf(pod));
  const sized = applyVolumeSizes(node, pod);
  if (!isBusy) await sized;
  // kubelet restarts a container within a resize (resizePolicy), without a further call after that.
  const ofName = node.registry.containersOf(pod.sandboxId).filter(({ name }) => name === container);
  if (ofName.length > 1) scheduleVolumeGrowth(node, pod, false);
}

/** Whether a volume size of the pod is a share of this container's limit. False if the volumes are unreadable. */
function hasShareOf({ volumes, policies, log }: Node, pod: PodDescription, container: string): boolean {
  try {
    return volumes.ofPod(pod.metadata.uid).some(({ name }) => {
      const policy = policies.policy(pod.sandboxId, name);
      return policy.kind === 'container-share' && policy.container === container;
    });
  } catch (error) {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume sizes not applied');
    return false;
  }
}

function resizeVolumes(node: Node, pod: PodDescription, isPostponed: boolean, requester: Requester): Promise<void> {
  return node.lock.run(lockKeyOf(pod), async () => {
    if (isPostponed && node.growth.isRunning(pod.sandboxId)) return;
    // The volumes belong to the pod, and its newest sandbox has their policies.
    if (isReplaced(node.registry, pod)) return;
    await tryRecoverPod(node, pod);
    const { policies } = node;
    const volumes = readVolumes(node.volumes, pod);
    // kubelet writes its checkpoint before it creates the pod. It may resize the volumes itself.
    if (volumes.length > 0) await node.kubelet.refreshed();
    const state = await readDeclaredPod(node, pod, volumes);
    observeVolumes(node, pod, volumes, state.memory);
    const pending = node.pending.of(pod, state);
    // Volumes that were shrunk for a resize that kubelet has admitted but not actuated stay small.
    const sizes =
      pending === undefined
        ? policies.targets(pod.sandboxId, state.volumes, state.memory, limitsByName(node, pod, state))
        : volumeChanges(node, pod, { state, after: state, pending }).volumes;
    if (pending !== undefined && volumes.length > 0) applyLater(node, pod, requester);
    // A volume that stores too much does not prevent the resize of another.
    const fitting = withoutOverdue(node.volumes, pod, state, sizes, { present: sizes, podLimit: state.memory });
    const others = new Map([...sizes].filter(([name]) => !fitting.has(name)));
    // Not awaited: the creation of the pod must not wait for the disk.
    if (fitting.size === 0) void journalVolumes(node, pod);
    for (const volumes of [fitting, others]) {
      if (volumes.size === 0) continue;
      const apply = async (): Promise<void> => {
        const transaction = await Transaction.begin(node, pod, state, { call: 'none', volumes });
        await transaction.apply();
      };
      const report = node.history.request(identityOf(pod), requester);
      await node.outcomes.track(pod.sandboxId, apply, report);
    }
  });
}

/** Restores volume records of a pod, journalled by an earlier run of the shim or an earlier sandbox of the pod. */
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
 * Deletes the journal entry of a removed sandbox, unless the pod's volumes still exist, or it has a folder and an
 * unfinished transaction: another sandbox of the pod may use its volumes and its cgroup. If the registry knows another
 * sandbox, the entry goes to the newest one: kubelet removes an ended sandbox, and the pod continues in the next.
 */
export function forgetPodRecord(node: Node, pod: PodDescription): void {
  const { registry, journal, log } = node;
  const forget = async (): Promise<void> => {
    const newest = newestSandbox(registry, pod.metadata.uid);
    if (newest !== undefined) await journal.move(pod.sandboxId, newest);
    else if (!isLeftToNext(node, pod)) await journal.forget(pod);
    // Includes pods whose volumes still existed when they were removed: kubelet has unmounted them by now.
    await forgetDeleted(node);
  };
  forget().catch((error: unknown) => {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'journal entry of a removed pod not deleted');
  });
}

const isLeftToNext = ({ journal, volumes }: Node, pod: PodDescription): boolean =>
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
export function learnPodVolumes(node: Node, pod: PodDescription): void {
  const { policies, outcomes, tree, volumes, kubelet, log } = node;
  const faults = policies.annotate(pod.sandboxId, pod.annotations);
  outcomes.addPod(
    pod.sandboxId,
    faults.map(({ message }) => message),
  );
  restoreVolumes(node, pod);
  kubelet.refresh();
  const ineffective = policies.ineffective(pod.sandboxId).map((volume) => ofKubelet(pod, volume));
  for (const { message } of [...faults, ...ineffective])
    log.warn({ pod: pod.sandboxId, error: message }, 'annotation ignored');
  try {
    if (!hasPodCgroup(pod)) return;
    const mounted = readVolumes(volumes, pod);
    // Most pods have no volumes, and all pods of the node are learned at the start.
    if (mounted.length === 0) return;
    observeVolumes(node, pod, mounted, tree.readMemoryMax(podCgroup(pod)));
    prepareRemounts(volumes, log);
  } catch (error) {
    // The pod may have ended. A later resize reads its volumes.
    log.debug({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes of a new pod not read');
  }
}
