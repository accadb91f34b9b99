import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import {
  type VolumePolicy,
  isSameSize,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
} from '../../tmpfs/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { type MountedVolume, type VolumeState, podName } from '../../sandbox/index.ts';
import type { AskedVolume, VolumeRecord } from '../journal/index.ts';

/** A volume that somebody else has remounted. */
export interface ForeignRemount {
  readonly name: string;
  /** As it was last known, and as it is. */
  readonly from: Bytes;
  readonly to: Bytes;
}

/**
 * What decides the size of each volume of each pod: what was asked for it at run time, else its annotation, else what somebody
 * else has made of it, or what was seen when it was first met. The size that a volume was last known with is kept only to tell
 * whether anybody else has changed it: how large it is, the kernel is asked.
 */
export class VolumePolicies {
  readonly #pods = new Map<string, PodPolicies>();

  /** Takes the annotations that a pod was made with. Gives what makes no sense in them; the rest counts. */
  annotate(sandboxId: string, annotations: Readonly<Record<string, string>>): readonly ShimError[] {
    const { policies, errors } = readVolumeAnnotations(annotations);
    const { made } = this.#pod(sandboxId);
    for (const [volume, policy] of policies) made.set(volume, policy);
    return errors;
  }

  /** Takes what the journal has of a pod: it was there before all that has been met since. */
  restore(sandboxId: string, volumes: ReadonlyMap<string, VolumeRecord>): void {
    const { known } = this.#pod(sandboxId);
    for (const [volume, record] of volumes) known.set(volume, record);
  }

  /** Takes what a request that has been carried out has asked for. Nothing of a pod that has gone meanwhile. */
  adopt(sandboxId: string, asked: Iterable<readonly [string, AskedVolume]>): void {
    const known = this.#pods.get(sandboxId)?.known;
    for (const [volume, { policy, annotated }] of asked) {
      const before = known?.get(volume);
      known?.set(volume, { ...before, policy, source: 'asked', annotated: annotated || before?.annotated === true });
    }
  }

  /** An annotation says a volume's size from now on, though the pod was made without it; or no longer does. */
  annotated(sandboxId: string, volume: string, annotated: boolean): void {
    const known = this.#pods.get(sandboxId)?.known;
    const before = known?.get(volume);
    if (before !== undefined) known?.set(volume, { ...before, annotated });
  }

  /**
   * Meets a pod's volumes. One that has no annotation and was not met before gets its policy from how it is mounted. One that
   * has another size than it was left with, on the same mount, somebody else has remounted (a kubelet of 1.37 that resizes volumes
   * itself): that size is what it shall have, unless an annotation says otherwise. Gives those.
   */
  meet(sandboxId: string, volumes: readonly MountedVolume[], podLimit: Limit<Bytes>): readonly ForeignRemount[] {
    const { known, made } = this.#pod(sandboxId);
    const found: ForeignRemount[] = [];
    for (const { name, ...mount } of volumes) {
      const before = known.get(name);
      if (before === undefined) {
        const policy = policyAtFirstSight(mount.size, podLimit);
        if (!made.has(name)) known.set(name, { policy, source: 'seen', annotated: false, mount });
        continue;
      }
      const last = before.mount;
      const isForeign = last?.device === mount.device && !isSameSize(last.size, mount.size);
      if (!isForeign || before.annotated || made.has(name)) {
        known.set(name, { ...before, mount });
        continue;
      }
      const policy = { kind: 'absolute', size: mount.size } as const;
      known.set(name, { policy, source: 'found', annotated: false, mount });
      found.push({ name, from: last.size, to: mount.size });
    }
    return found;
  }

  /** These have the size that we have given them. */
  left(sandboxId: string, volumes: readonly MountedVolume[]): void {
    const known = this.#pods.get(sandboxId)?.known;
    for (const { name, ...mount } of volumes) {
      const before = known?.get(name);
      if (before !== undefined) known?.set(name, { ...before, mount });
    }
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
  }

  policy(sandboxId: string, volume: string): VolumePolicy {
    const pod = this.#pods.get(sandboxId);
    const known = pod?.known.get(volume);
    if (known?.source === 'asked') return known.policy;
    return pod?.made.get(volume) ?? known?.policy ?? { kind: 'fixed' };
  }

  /** What the journal has to have of a pod, as it is now. */
  records(sandboxId: string): ReadonlyMap<string, VolumeRecord> {
    return new Map(this.#pods.get(sandboxId)?.known);
  }

  /**
   * The sizes that the volumes shall have under these limits; only those that differ from what they have. `overrides` are
   * asked for by the request at hand, and become known by {@link adopt} once it has been carried out.
   */
  targets(
    sandboxId: string,
    volumes: readonly VolumeState[],
    podLimit: Limit<Bytes>,
    containerLimits: ReadonlyMap<string, Limit<Bytes>>,
    overrides: ReadonlyMap<string, VolumePolicy> = new Map(),
  ): Map<string, Bytes> {
    const targets = new Map<string, Bytes>();
    for (const { name, size } of volumes) {
      const policy = overrides.get(name) ?? this.policy(sandboxId, name);
      const target = targetSize(policy, podLimit, containerLimits);
      if (target !== undefined && !isSameSize(target, size)) targets.set(name, target);
    }
    return targets;
  }

  #pod(sandboxId: string): PodPolicies {
    let pod = this.#pods.get(sandboxId);
    if (pod === undefined) this.#pods.set(sandboxId, (pod = { made: new Map(), known: new Map() }));
    return pod;
  }
}

interface PodPolicies {
  /** By the annotations that the pod was made with. */
  readonly made: Map<string, VolumePolicy>;
  readonly known: Map<string, VolumeRecord>;
}

/** Throws UNKNOWN_VOLUME when one of these is no memory-backed volume of the pod. */
export function assertHasVolumes(pod: PodDescription, volumes: readonly VolumeState[], names: Iterable<string>): void {
  for (const volume of names) {
    if (volumes.some(({ name }) => name === volume)) continue;
    const message = `pod ${podName(pod)} has no memory-backed volume ${volume}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, message, { pod: pod.metadata.uid, volume });
  }
}
