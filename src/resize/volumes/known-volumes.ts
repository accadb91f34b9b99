import { messageOf } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { type MemoryVolumes, isSameSize } from '../../tmpfs/index.ts';
import type { VolumePolicies } from './policies.ts';
import type { Log } from '../../observe/index.ts';
import { type MountedVolume, type Registry, readVolumes } from '../../sandbox/index.ts';
import { type Step, policyText } from '../model/index.ts';
import type { AskedVolume, PodJournal, VolumeRecord } from '../journal/index.ts';
import type { PodOutcomes } from '../history/index.ts';
import type { KeyedLock } from '../../core/concurrency/index.ts';

export interface KnownVolumesParts {
  readonly registry: Registry;
  readonly journal: PodJournal;
  readonly policies: VolumePolicies;
  /** How the requests of each pod went, for its status. */
  readonly outcomes: PodOutcomes;
  /** One transaction at a time for a pod, by sandbox id. */
  readonly lock: KeyedLock;
  readonly log: Log;
}

/**
 * Compares a pod's volumes with how they were left. Not while a transaction is unfinished: what it has made of them is neither
 * kubelet's doing nor anybody else's, and {@link remountsEnded} tells.
 */
export function meetVolumes(
  context: Pick<KnownVolumesParts, 'journal' | 'policies' | 'outcomes' | 'log'>,
  pod: PodDescription,
  volumes: readonly MountedVolume[],
  podLimit: Limit<Bytes>,
): void {
  if (context.journal.transactionOf(pod) !== undefined) return;
  for (const { name, from, to } of context.policies.meet(pod.sandboxId, volumes, podLimit)) {
    context.outcomes.allocate(pod.sandboxId, new Map([[name, to]]));
    const fields = { pod: pod.sandboxId, uid: pod.metadata.uid, volume: name, from, to };
    context.log.info(fields, 'volume remounted by another program; its new size is kept');
  }
}

/**
 * A transaction with these steps is over: what its volumes have is our own doing, unless it is neither their old nor their new
 * size. Never rejects: what cannot be read is compared at the next request.
 */
export function remountsEnded(
  context: { readonly volumes: MemoryVolumes; readonly policies: VolumePolicies; readonly log: Log },
  pod: PodDescription,
  steps: readonly Step[],
): void {
  const remounts = steps.filter((step) => step.kind === 'volume');
  if (remounts.length === 0) return;
  try {
    const ours = readVolumes(context.volumes, pod).filter(({ name, size }) =>
      remounts.some(({ volume, from, to }) => volume === name && (isSameSize(from, size) || isSameSize(to, size))),
    );
    context.policies.left(pod.sandboxId, ours);
  } catch (error) {
    context.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'reading volumes after a resize failed');
  }
}

/** Brings what is known of a pod's volumes to the disk, where it is not yet. Never rejects. The pod's lock is held. */
export async function keepVolumes(
  context: { readonly journal: PodJournal; readonly policies: VolumePolicies; readonly log: Log },
  pod: PodDescription,
): Promise<void> {
  if (isKept(context, pod)) return;
  try {
    await context.journal.setVolumes(pod, context.policies.records(pod.sandboxId));
  } catch (error) {
    context.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume policies not journalled');
  }
}

/**
 * An annotation has come to say a volume's size at run time, or has gone again: with one, nobody else's remount is taken over.
 * Never rejects.
 */
export async function noteAnnotation(
  context: Pick<KnownVolumesParts, 'registry' | 'journal' | 'policies' | 'lock' | 'log'>,
  sandboxId: string,
  volume: string,
  annotated: boolean,
): Promise<void> {
  await context.lock.run(sandboxId, async () => {
    context.policies.annotated(sandboxId, volume, annotated);
    const pod = context.registry.pods.find((known) => known.sandboxId === sandboxId);
    if (pod !== undefined) await keepVolumes(context, pod);
  });
}

/** The same for all pods: what has been seen of them at a start. Never rejects. */
export async function keepAllVolumes(
  context: Pick<KnownVolumesParts, 'registry' | 'journal' | 'policies' | 'lock' | 'log'>,
): Promise<void> {
  const pods = context.registry.pods.filter((pod) => !isKept(context, pod));
  await Promise.all(pods.map((pod) => context.lock.run(pod.sandboxId, () => keepVolumes(context, pod))));
}

/** Whether all this has been asked for before, and nothing else since. */
export function isAsked(known: ReadonlyMap<string, VolumeRecord>, asked: ReadonlyMap<string, AskedVolume>): boolean {
  return [...asked].every(([name, { policy, annotated }]) => {
    const before = known.get(name);
    if (before?.source !== 'asked' || (annotated && !before.annotated)) return false;
    return policyText(before.policy) === policyText(policy);
  });
}

function isKept(
  { policies, journal }: { readonly journal: PodJournal; readonly policies: VolumePolicies },
  pod: PodDescription,
): boolean {
  const [known, kept] = [policies.records(pod.sandboxId), journal.volumesOf(pod)];
  return known.size === kept.size && [...known].every(([name, record]) => isSameRecord(record, kept.get(name)));
}

const isSameRecord = (one: VolumeRecord, other: VolumeRecord | undefined): boolean =>
  other !== undefined &&
  policyText(one.policy) === policyText(other.policy) &&
  one.source === other.source &&
  one.annotated === other.annotated &&
  one.mount?.device === other.mount?.device &&
  one.mount?.size === other.mount?.size;
