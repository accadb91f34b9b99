import { Code, Reason, ShimError } from '../errors/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import {
  type VolumePolicy,
  isSameSize,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
} from '../tmpfs/index.ts';
import type { Bytes, Limit } from '../units/index.ts';
import type { VolumeState } from './state.ts';

/**
 * What decides the size of each volume of each pod: its annotation, or what was seen when the volume was first met.
 * Sizes themselves are never remembered: the kernel is asked.
 */
export class VolumePolicies {
  readonly #pods = new Map<string, PodPolicies>();

  /** Takes a pod's annotations, over what earlier ones said. Gives what makes no sense in them; the rest counts. */
  annotate(sandboxId: string, annotations: Readonly<Record<string, string>>): readonly ShimError[] {
    const { policies, errors } = readVolumeAnnotations(annotations);
    this.adopt(sandboxId, policies);
    return errors;
  }

  /** Takes policies that a request has set. */
  adopt(sandboxId: string, policies: ReadonlyMap<string, VolumePolicy>): void {
    const { annotated } = this.#pod(sandboxId);
    for (const [volume, policy] of policies) annotated.set(volume, policy);
  }

  /** Meets a pod's volumes: one that has no annotation and was not met before gets its policy from how it is mounted. */
  meet(sandboxId: string, volumes: readonly VolumeState[], podLimit: Limit<Bytes>): void {
    const pod = this.#pod(sandboxId);
    for (const { name, size } of volumes) {
      if (!pod.seen.has(name)) pod.seen.set(name, policyAtFirstSight(size, podLimit));
    }
  }

  /** The same anew: what was seen in the middle of a resize that was cut off says nothing. */
  meetAgain(sandboxId: string, volumes: readonly VolumeState[], podLimit: Limit<Bytes>): void {
    this.#pod(sandboxId).seen.clear();
    this.meet(sandboxId, volumes, podLimit);
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
  }

  policy(sandboxId: string, volume: string): VolumePolicy {
    const pod = this.#pods.get(sandboxId);
    return pod?.annotated.get(volume) ?? pod?.seen.get(volume) ?? { kind: 'fixed' };
  }

  /**
   * The sizes that the volumes shall have under these limits; only those that differ from what they have. `overrides` are
   * asked for by the request at hand, and become known by {@link annotate} once it has been carried out.
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
    if (pod === undefined) this.#pods.set(sandboxId, (pod = { annotated: new Map(), seen: new Map() }));
    return pod;
  }
}

interface PodPolicies {
  readonly annotated: Map<string, VolumePolicy>;
  readonly seen: Map<string, VolumePolicy>;
}

/** Throws UNKNOWN_VOLUME when one of these is no memory-backed volume of the pod. */
export function assertHasVolumes(pod: PodDescription, volumes: readonly VolumeState[], names: Iterable<string>): void {
  for (const volume of names) {
    if (volumes.some(({ name }) => name === volume)) continue;
    const message = `pod ${pod.metadata.namespace}/${pod.metadata.name} has no memory-backed volume ${volume}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, message, { pod: pod.metadata.uid, volume });
  }
}
