import { type Bytes, bytes, Code, type Limit, Reason, ShimError, suggestion } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import {
  fitsIn,
  isSameSize,
  type PodVolumes,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
  type VolumePolicy,
} from '../../tmpfs/index.ts';
import type { RequestedVolume, VolumeMount, VolumeRecord } from '../journal/record.ts';
import { compareLimits, formatMemory, sameMemory } from '../plan/amounts.ts';
import type { PodTarget } from '../plan/step.ts';
import type { DeclaredPod, DeclaredVolume } from '../pods/declared-pod.ts';
import { podName } from '../pods/names.ts';
import type { MountedVolume, PodState, VolumeState } from '../pods/pod-state.ts';

/** A volume that another program has remounted. */
export interface ForeignRemount {
  readonly name: string;
  /** The last known size. */
  readonly from: Bytes;
  /** The present size. */
  readonly to: Bytes;
  /** Whether kubelet resizes the volume itself: its policy stays then. */
  readonly isKubelets: boolean;
}

/** Whether volumes without annotation follow the pod limit: `auto` (if first seen with its size) or `never`. */
export type FollowSetting = 'auto' | 'never';

export interface VolumePoliciesOptions {
  readonly follow?: FollowSetting;
  /** The memory-backed volumes in the spec of a pod. Undefined when the spec is not known. */
  readonly declared?: (sandboxId: string) => ReadonlyMap<string, DeclaredVolume> | undefined;
  /** The memory that all pods of the node may use together. Undefined if unknown. Default: unknown. */
  readonly nodeMemory?: (sandboxId: string) => Bytes | undefined;
  /** Whether kubelet resizes a volume itself (KEP-6030). Default: none. */
  readonly isKubelets?: (sandboxId: string, volume: string) => boolean;
}

/**
 * The size policy of each volume of each pod. A volume that kubelet resizes itself is fixed. Otherwise, the first
 * applicable policy wins: the policy requested at run time; the annotation that the pod was created with; the size set
 * by another program's remount; the policy derived from the mount at first sight, bounded by the size limit in the
 * pod's spec. The last known size only serves to detect remounts by other programs: the present size always comes from
 * the kernel.
 */
export class VolumePolicies {
  readonly #pods = new Map<string, PodPolicies>();
  readonly #follow: FollowSetting;
  readonly #declared: NonNullable<VolumePoliciesOptions['declared']>;
  readonly #nodeMemory: NonNullable<VolumePoliciesOptions['nodeMemory']>;
  /** Whether kubelet resizes a volume itself (KEP-6030). */
  readonly isKubelets: NonNullable<VolumePoliciesOptions['isKubelets']>;

  constructor({
    follow = 'auto',
    declared = () => undefined,
    nodeMemory = () => undefined,
    isKubelets = () => false,
  }: VolumePoliciesOptions = {}) {
    this.#follow = follow;
    this.#declared = declared;
    this.#nodeMemory = nodeMemory;
    this.isKubelets = isKubelets;
  }

  /** Sets the annotations that a pod was created with. Returns an error for each invalid one; the valid ones apply. */
  annotate(sandboxId: string, annotations: Readonly<Record<string, string>>): readonly ShimError[] {
    const { policies, errors } = readVolumeAnnotations(annotations);
    const { annotated } = this.#pod(sandboxId);
    for (const [volume, policy] of policies) annotated.set(volume, policy);
    return errors;
  }

  /** Sets the journal's records of a pod. They take precedence over what was observed since the start. */
  restore(sandboxId: string, volumes: ReadonlyMap<string, VolumeRecord>): void {
    const { known } = this.#pod(sandboxId);
    for (const [volume, record] of volumes) known.set(volume, record);
  }

  /** Sets the policies of a completed request. Does nothing for a pod that is gone. */
  adopt(sandboxId: string, asked: Iterable<readonly [string, RequestedVolume]>): void {
    const known = this.#pods.get(sandboxId)?.known;
    for (const [volume, { policy, annotated }] of asked) {
      const before = known?.get(volume);
      known?.set(volume, { ...before, policy, source: 'asked', annotated: annotated || before?.annotated === true });
    }
  }

  /** Sets whether an annotation that was added at run time sets a volume's size. */
  setAnnotated(sandboxId: string, volume: string, annotated: boolean): void {
    const known = this.#pods.get(sandboxId)?.known;
    const before = known?.get(volume);
    if (before !== undefined) known?.set(volume, { ...before, annotated });
  }

  /**
   * Updates the policies from a pod's mounted volumes. A volume seen for the first time, without an annotation, gets
   * its policy from its mount. A volume whose size changed on the same mount was remounted by another program (kubelet
   * 1.37 resizes volumes itself, KEP-6030): its policy becomes that size, unless an annotation sets another one.
   * Returns the latter remounts.
   */
  observe(sandboxId: string, volumes: readonly MountedVolume[], podLimit: Limit<Bytes>): readonly ForeignRemount[] {
    const { known, annotated } = this.#pod(sandboxId);
    const declared = this.#declared(sandboxId);
    const found: ForeignRemount[] = [];
    for (const { name, ...mount } of volumes) {
      const before = known.get(name);
      const sizeLimit = declared?.get(name)?.sizeLimit;
      // While the spec is unknown, the volume does not grow above its last known size limit.
      const mounted = bytes(Math.min(mountedSize(before, mount), sizeLimit ?? Infinity));
      if (before === undefined) {
        const policy = seenPolicy(policyAtFirstSight(mount.size, podLimit), mount, sizeLimit);
        if (!annotated.has(name)) known.set(name, { policy, source: 'seen', annotated: false, mount, mounted });
        continue;
      }
      const last = before.mount;
      const isForeign = last?.device === mount.device && !isSameSize(last.size, mount.size);
      const isKubelets = this.isKubelets(sandboxId, name);
      if (!isForeign || isKubelets || before.annotated || annotated.has(name)) {
        const policy = before.source === 'seen' ? seenPolicy(before.policy, mount, sizeLimit) : before.policy;
        known.set(name, { ...before, policy, mount, mounted });
        if (isForeign && isKubelets) found.push({ name, from: last.size, to: mount.size, isKubelets });
        continue;
      }
      const policy = { kind: 'absolute', size: mount.size } as const;
      known.set(name, { policy, source: 'found', annotated: false, mount, mounted });
      found.push({ name, from: last.size, to: mount.size, isKubelets });
    }
    return found;
  }

  /** Records the mounts of volumes that the shim has just resized. */
  recordMounts(sandboxId: string, volumes: readonly MountedVolume[]): void {
    const known = this.#pods.get(sandboxId)?.known;
    for (const { name, ...mount } of volumes) {
      const before = known?.get(name);
      if (before !== undefined) known?.set(name, { ...before, mount });
    }
  }

  forget(sandboxId: string): void {
    this.#pods.delete(sandboxId);
  }

  /** Returns the volumes of a pod that kubelet resizes itself, whose annotation or request has no effect therefore. */
  ineffective(sandboxId: string): readonly string[] {
    const pod = this.#pods.get(sandboxId);
    if (pod === undefined) return [];
    const { annotated, known } = pod;
    const requested = [...known].flatMap(([volume, { source }]) => (source === 'asked' ? [volume] : []));
    return [...new Set([...annotated.keys(), ...requested])].filter((volume) => this.isKubelets(sandboxId, volume));
  }

  policy(sandboxId: string, volume: string): VolumePolicy {
    if (this.isKubelets(sandboxId, volume)) return { kind: 'fixed', by: 'kubelet' };
    const pod = this.#pods.get(sandboxId);
    const known = pod?.known.get(volume);
    if (known?.source === 'asked') return known.policy;
    const annotated = pod?.annotated.get(volume);
    if (annotated !== undefined || known?.source !== 'seen') return annotated ?? known?.policy ?? { kind: 'fixed' };
    const spec = this.#declared(sandboxId);
    return this.#policyOfSeen(known, spec === undefined ? 'unknown' : spec.get(volume)?.sizeLimit);
  }

  /**
   * Returns the policy of a volume for which only the mount and perhaps the spec are known. kubelet makes no volume
   * larger than its size limit: a larger volume that did not have the pod's limit at first sight was sized by another
   * program, and its size stays. Without the spec, the size limit may equal the mount's size, and kubelet evicts a pod
   * that stores more.
   */
  #policyOfSeen({ policy, mount, mounted }: VolumeRecord, sizeLimit: Bytes | 'unknown' | undefined): VolumePolicy {
    if (this.#follow === 'never') return { kind: 'fixed' };
    if (sizeLimit === undefined) return policy;
    if (sizeLimit === 'unknown') {
      const atMost = bytes(Math.max(mounted ?? 0, mount?.size ?? 0));
      return policy.kind === 'follow' && atMost > 0 ? { kind: 'follow', atMost } : policy;
    }
    const follows = policy.kind === 'follow' || (mount !== undefined && isWithin(mount.size, sizeLimit));
    return follows ? { kind: 'follow', atMost: sizeLimit } : policy;
  }

  /**
   * Returns the largest size to which a volume grows. A larger volume does not shrink to it. A volume that follows the
   * pod limit does not grow above the memory for pods (kubelet pkg/volume/emptydir/empty_dir.go,
   * calculateEmptyDirMemorySize). kubelet evicts a pod whose volume stores more than its size limit
   * (pkg/kubelet/eviction/eviction_manager.go, emptyDirLimitEviction).
   */
  #most(sandboxId: string, volume: string, { kind }: VolumePolicy): number {
    const node = kind === 'follow' ? this.#nodeMemory(sandboxId) : undefined;
    return Math.min(node ?? Infinity, this.#declared(sandboxId)?.get(volume)?.sizeLimit ?? Infinity);
  }

  /** Returns the present volume records of a pod, for the journal. */
  records(sandboxId: string): ReadonlyMap<string, VolumeRecord> {
    return new Map(this.#pods.get(sandboxId)?.known);
  }

  /**
   * Returns the sizes that follow from these limits, for the volumes whose size has to change.
   * @param overrides the policies that the request in progress sets; {@link adopt} makes them permanent once it is
   * completed
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
      const wanted = targetSize(policy, podLimit, containerLimits);
      const most = Math.max(this.#most(sandboxId, name, policy), size);
      const target = wanted === undefined || wanted <= most ? wanted : bytes(most);
      if (target !== undefined && !isSameSize(target, size)) targets.set(name, target);
    }
    return targets;
  }

  #pod(sandboxId: string): PodPolicies {
    let pod = this.#pods.get(sandboxId);
    if (pod === undefined) this.#pods.set(sandboxId, (pod = { annotated: new Map(), known: new Map() }));
    return pod;
  }
}

/** Returns the policy of a volume: within its size limit, it also follows a lower one of a later spec (KEP-6030). */
const seenPolicy = (policy: VolumePolicy, { size }: VolumeMount, sizeLimit: Bytes | undefined): VolumePolicy =>
  sizeLimit !== undefined && isWithin(size, sizeLimit) ? { kind: 'follow' } : policy;

const isWithin = (size: Bytes, sizeLimit: Bytes): boolean => size <= sizeLimit || isSameSize(sizeLimit, size);

/** Returns the largest size with which a volume was mounted. A new mount has another device. */
function mountedSize(before: VolumeRecord | undefined, { device, size }: VolumeMount): Bytes {
  const known = before?.mounted ?? (before?.mount?.device === device ? before.mount.size : undefined);
  return known === undefined || (before?.mount?.device !== device && size > known) ? size : known;
}

interface PodPolicies {
  /** From the annotations that the pod was created with. */
  readonly annotated: Map<string, VolumePolicy>;
  readonly known: Map<string, VolumeRecord>;
}

/** Throws UNKNOWN_VOLUME when one of these names is not a memory-backed volume of the pod. */
export function assertHasVolumes(pod: PodDescription, volumes: readonly VolumeState[], names: Iterable<string>): void {
  for (const volume of names) {
    if (volumes.some(({ name }) => name === volume)) continue;
    const all = volumes.map(({ name }) => name).sort();
    const found = all.length === 0 ? '' : ` (it has ${all.join(', ')})`;
    const message = `pod ${podName(pod)} has no memory-backed volume ${volume}${suggestion(volume, all)}${found}`;
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, message, { pod: pod.metadata.uid, volume });
  }
}

/** Throws VOLUME_RESIZED_BY_KUBELET when kubelet resizes one of these volumes itself (KEP-6030). */
export function assertNotOfKubelet(
  policies: Pick<VolumePolicies, 'isKubelets'>,
  pod: PodDescription,
  volumes: Iterable<string>,
): void {
  for (const volume of volumes) if (policies.isKubelets(pod.sandboxId, volume)) throw ofKubelet(pod, volume);
}

/** Returns the error for a requested size of a volume that kubelet resizes itself. */
export function ofKubelet(pod: PodDescription, volume: string): ShimError {
  const message = `pod ${podName(pod)}: volume ${volume}: kubelet sets its size from the sizeLimit in the spec (feature gate InPlacePodVerticalScalingMemoryBackedVolumes)`;
  const context = { pod: pod.metadata.uid, volume };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_RESIZED_BY_KUBELET, message, context);
}

/**
 * Throws VOLUME_EXCEEDS_SIZE_LIMIT when a requested size or share is above the size limit in the pod's spec: kubelet
 * evicts a pod that stores more (pkg/kubelet/eviction/eviction_manager.go, emptyDirLimitEviction). A volume that
 * follows the pod limit stays within both limits.
 */
export function assertWithinSizeLimits(
  pod: PodDescription,
  { volumes }: Pick<DeclaredPod, 'volumes'>,
  requested: ReadonlyMap<string, VolumePolicy>,
  podLimit: Limit<Bytes>,
  containerLimits: ReadonlyMap<string, Limit<Bytes>>,
): void {
  for (const [volume, policy] of requested) {
    const limit = volumes.get(volume)?.sizeLimit;
    const size = policy.kind === 'follow' ? undefined : targetSize(policy, podLimit, containerLimits);
    if (limit === undefined || size === undefined || size <= limit || isSameSize(limit, size)) continue;
    const message = `pod ${podName(pod)}: volume ${volume}: ${size} is above the sizeLimit in the spec, ${limit}: kubelet evicts a pod that stores more`;
    const context = { pod: pod.metadata.uid, volume, asked: String(size), found: String(limit) };
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.VOLUME_EXCEEDS_SIZE_LIMIT, message, context);
  }
}

/**
 * KEP-6030: a volume may be larger than its pod's memory limit, with a warning. Returns the warning; undefined if it is
 * not larger. Sizes that differ only by rounding are equal: the kernel rounds a tmpfs size up to a page, and memory.max
 * down.
 * @param sizeLimit of the volume, as far as it is known: above it, kubelet evicts the pod
 */
export function excessWarning(size: Bytes, podLimit: Limit<Bytes>, sizeLimit?: Bytes): string | undefined {
  if (sizeLimit !== undefined && size > sizeLimit && !sameMemory(size, sizeLimit))
    return `has ${formatMemory(size)}, more than its sizeLimit, ${formatMemory(sizeLimit)}: kubelet evicts the pod if more is stored`;
  if (podLimit === 'max' || size <= podLimit || sameMemory(size, podLimit)) return undefined;
  const [has, limit] = [formatMemory(size), formatMemory(podLimit)];
  return `has ${has}, more than the memory limit of the pod, ${limit}: a process may be killed before the volume is full`;
}

/** A volume that is larger than the memory limit of its pod. */
export interface Excess {
  readonly volume: string;
  readonly size: Bytes;
  readonly memoryLimit: Limit<Bytes>;
  readonly warning: string;
}

/** KEP-6030: returns each volume that is larger than the memory limit of its pod after a resize of either. */
export function excesses(state: PodState, target: PodTarget): readonly Excess[] {
  const { memory = state.memory } = target;
  return state.volumes.flatMap(({ name, size: before }) => {
    const size = target.volumes.get(name) ?? before;
    const warning = excessWarning(size, memory);
    if (warning === undefined || (size === before && memory === state.memory)) return [];
    return [{ volume: name, size, memoryLimit: memory, warning }];
  });
}

/**
 * Returns the sizes without those that a volume should have had before and cannot have, because it stores more: they do
 * not prevent another change of the pod. KEP-6030: a volume does not stay above a pod limit that it was below before.
 * @param sizes the sizes after the change, as {@link VolumePolicies.targets} returns them
 * @param present the same for the present limits
 * @param podLimit the memory limit of the pod after the change
 */
export function withoutOverdue(
  volumes: Pick<PodVolumes, 'measure'>,
  pod: PodDescription,
  state: PodState,
  sizes: ReadonlyMap<string, Bytes>,
  { present, podLimit }: { readonly present: ReadonlyMap<string, Bytes>; readonly podLimit: Limit<Bytes> },
): ReadonlyMap<string, Bytes> {
  const wouldExceed = (size: Bytes): boolean =>
    compareLimits(size, podLimit) > 0 && (compareLimits(size, state.memory) <= 0 || sameMemory(state.memory, size));
  return new Map(
    state.volumes.flatMap(({ name, size: now }): [string, Bytes][] => {
      const size = sizes.get(name);
      if (size === undefined) return [];
      const isDue = (present.get(name) ?? Infinity) <= size;
      if (!isDue || fitsIn(size, volumes.measure({ podUid: pod.metadata.uid, name }))) return [[name, size]];
      return podLimit !== 'max' && wouldExceed(now) ? [[name, podLimit]] : [];
    }),
  );
}

/** Returns the sizes that shrink a volume: those apply before memory limits change (KEP-6030). */
export function onlyShrinking(state: PodState, sizes: ReadonlyMap<string, Bytes>): ReadonlyMap<string, Bytes> {
  return new Map(
    state.volumes.flatMap(({ name, size }): [string, Bytes][] => {
      const to = sizes.get(name);
      return to !== undefined && to < size ? [[name, to]] : [];
    }),
  );
}
