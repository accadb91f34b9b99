import { type Bytes, type Limit, messageOf } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { isSameSize } from '../../tmpfs/index.ts';
import type { PodJournal } from '../journal/pod-journal.ts';
import type { RequestedVolume, VolumeRecord } from '../journal/record.ts';
import type { Node } from '../node.ts';
import type { Step } from '../plan/step.ts';
import { policyText } from '../plan/value-changes.ts';
import { isReplaced, lockKeyOf } from '../pods/pod-identity.ts';
import type { MountedVolume } from '../pods/pod-state.ts';
import { readVolumes } from '../pods/read-pod.ts';
import type { VolumePolicies } from './policies.ts';

/**
 * Compares a pod's mounted volumes with their last known sizes, and adopts sizes that another program has set, such as
 * a kubelet with KEP-6030. Does nothing while a transaction is open: its own remounts look the same, and {@link
 * recordRemounts} records them. Also does nothing for a replaced sandbox: the volumes belong to the pod, and the
 * policies of its newest sandbox apply.
 */
export function observeVolumes(
  node: Node,
  pod: PodDescription,
  volumes: readonly MountedVolume[],
  podLimit: Limit<Bytes>,
): void {
  if (node.journal.transactionOf(pod) !== undefined || isReplaced(node.registry, pod)) return;
  for (const { name, from, to, isKubelets } of node.policies.observe(pod.sandboxId, volumes, podLimit)) {
    node.outcomes.setAllocated(pod.sandboxId, new Map([[name, to]]));
    const fields = { pod: pod.sandboxId, uid: pod.metadata.uid, volume: name, from, to };
    if (isKubelets) node.log.debug(fields, 'volume resized by kubelet');
    else node.log.info(fields, 'volume remounted by another program; its new size is kept');
  }
}

/**
 * Records the sizes of a transaction's volumes as set by the shim, after the transaction has ended. A volume with
 * neither its old nor its new size is left out: another program remounted it. Never throws: after a failed read the
 * next request compares the volumes.
 */
export function recordRemounts(node: Node, pod: PodDescription, steps: readonly Step[]): void {
  const remounts = steps.filter((step) => step.kind === 'volume');
  if (remounts.length === 0) return;
  try {
    const ours = readVolumes(node.volumes, pod).filter(({ name, size }) =>
      remounts.some(({ volume, from, to }) => volume === name && (isSameSize(from, size) || isSameSize(to, size))),
    );
    node.policies.recordMounts(pod.sandboxId, ours);
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'reading volumes after a resize failed');
  }
}

/** Writes a pod's volume records to the journal if they changed. Never rejects. The caller holds the pod's lock. */
export async function journalVolumes(node: Node, pod: PodDescription): Promise<void> {
  // A record that cannot be changed is reported by the journal, once.
  if (isJournalled(node, pod) || node.journal.isReadOnly(pod)) return;
  try {
    await node.journal.setVolumes(pod, node.policies.records(pod.sandboxId));
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume policies not journalled');
  }
}

/**
 * Records whether an annotation that was added at run time sets a volume's size. If so, a size from another program's
 * remount is not adopted. Never rejects.
 */
export async function setVolumeAnnotated(
  node: Node,
  sandboxId: string,
  volume: string,
  annotated: boolean,
): Promise<void> {
  const pod = node.registry.knownPod(sandboxId);
  if (pod === undefined) return;
  await node.lock.run(lockKeyOf(pod), async () => {
    node.policies.setAnnotated(sandboxId, volume, annotated);
    // The pod may have been removed.
    if (node.registry.knownPod(sandboxId) !== undefined) await journalVolumes(node, pod);
  });
}

/**
 * Writes the volume records of all pods to the journal if they changed, at the start of the shim. A pod has one record,
 * and its newest sandbox has the present policies. Leaves out a pod whose lock is held, because a request may hold it
 * for minutes. Never rejects. Returns whether no pod was left out.
 */
export async function journalAllVolumes(node: Node): Promise<boolean> {
  const pods = node.registry.pods.filter((pod) => !isReplaced(node.registry, pod) && !isJournalled(node, pod));
  const free = pods.filter((pod) => !node.lock.isHeld(lockKeyOf(pod)));
  await Promise.all(free.map((pod) => node.lock.run(lockKeyOf(pod), () => journalVolumes(node, pod))));
  return free.length === pods.length;
}

/** Returns whether all these policies are already in force because of an earlier request. */
export function isAlreadyAllocated(
  known: ReadonlyMap<string, VolumeRecord>,
  asked: ReadonlyMap<string, RequestedVolume>,
): boolean {
  return [...asked].every(([name, { policy, annotated }]) => {
    const before = known.get(name);
    if (before?.source !== 'asked' || (annotated && !before.annotated)) return false;
    return policyText(before.policy) === policyText(policy);
  });
}

function isJournalled(
  { policies, journal }: { readonly journal: PodJournal; readonly policies: VolumePolicies },
  pod: PodDescription,
): boolean {
  const [known, stored] = [policies.records(pod.sandboxId), journal.volumesOf(pod)];
  return known.size === stored.size && [...known].every(([name, record]) => isSameRecord(record, stored.get(name)));
}

const isSameRecord = (one: VolumeRecord, other: VolumeRecord | undefined): boolean =>
  other !== undefined &&
  policyText(one.policy) === policyText(other.policy) &&
  one.source === other.source &&
  one.annotated === other.annotated &&
  one.mount?.device === other.mount?.device &&
  one.mount?.size === other.mount?.size &&
  one.mounted === other.mounted;
