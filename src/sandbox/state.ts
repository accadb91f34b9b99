import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit } from '../units/index.ts';

/** What the kernel says of one running container. */
export interface ContainerState {
  readonly id: string;
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
  /** As the runtime has stored them. Undefined where nobody has asked: no rule of order goes by them. */
  readonly shares?: CpuShares;
}

/** What one container is asked to become. What is absent stays as it is. */
export interface ContainerWish {
  readonly id: string;
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly shares?: CpuShares;
}

/** A memory-backed volume as it is mounted. */
export interface VolumeState {
  readonly name: string;
  readonly size: Bytes;
}

/** The same with its file system, `major:minor`. */
export interface MountedVolume extends VolumeState {
  readonly device: string;
}

/** The live values of one pod, read before a plan is made. */
export interface PodState {
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
  /** Undefined without the cpu controller. */
  readonly weight: CpuWeight | undefined;
  /** What the pod's limit holds beside the sum of its containers' limits. CPU in the terms of cpu.max; quota 0: none. */
  readonly overhead: { readonly memory: Bytes; readonly cpu: CpuMax };
  /** The running containers, without the sandbox's own. */
  readonly containers: readonly ContainerState[];
  readonly volumes: readonly VolumeState[];
  /** The cgroups are units of systemd, which makes whole percents of a quota, rounded up, when anybody sets a property of one. */
  readonly inPercents?: true;
}

/** A file of the pod's cgroup by name, as it is and as it shall be. */
export interface UnifiedChange {
  readonly key: string;
  readonly from: string;
  readonly to: string;
}

/** The values that a pod shall have in the end. What is absent stays as it is. */
export interface PodTarget {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly weight?: CpuWeight;
  /** Keys that resource fields do not cover, as CRI's `unified` gives them. */
  readonly unified?: readonly UnifiedChange[];
  /** What the shim asks the runtime for itself, container by container. */
  readonly containers?: readonly ContainerWish[];
  /** The caller's own call that goes with it: a container's update, that of the pod itself, or none. */
  readonly call: 'container' | 'pod' | 'none';
  readonly volumes: ReadonlyMap<string, Bytes>;
}

export interface Change<Value> {
  readonly from: Value;
  readonly to: Value;
}

/** One update of one container, by the runtime. Both memory and CPU go the same way in it, if both are there. */
export interface ContainerStep {
  readonly kind: 'container';
  readonly id: string;
  readonly memory?: Change<Limit<Bytes>>;
  readonly cpu?: Change<CpuMax>;
  readonly shares?: Change<CpuShares>;
}

/** One write. A plan is a list of these, in order. */
export type Step =
  | { readonly kind: 'volume'; readonly volume: string; readonly from: Bytes; readonly to: Bytes }
  | { readonly kind: 'pod-memory'; readonly from: Limit<Bytes>; readonly to: Limit<Bytes> }
  | { readonly kind: 'pod-cpu'; readonly from: CpuMax; readonly to: CpuMax }
  | { readonly kind: 'pod-weight'; readonly from: CpuWeight; readonly to: CpuWeight }
  | { readonly kind: 'pod-unified'; readonly key: string; readonly from: string; readonly to: string }
  | ContainerStep
  /** The caller's own call, as it came. */
  | { readonly kind: 'runtime' };
