import type { Bytes, CpuMax, CpuWeight, Limit } from '../units/index.ts';

/** What the kernel says of one running container. */
export interface ContainerState {
  readonly id: string;
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
}

/** A memory-backed volume as it is mounted. */
export interface VolumeState {
  readonly name: string;
  readonly size: Bytes;
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
  /** The call to the runtime that goes with it: a container's update, or that of the pod itself. */
  readonly call: 'container' | 'pod';
  readonly volumes: ReadonlyMap<string, Bytes>;
}

/** One write. A plan is a list of these, in order. */
export type Step =
  | { readonly kind: 'volume'; readonly volume: string; readonly from: Bytes; readonly to: Bytes }
  | { readonly kind: 'pod-memory'; readonly from: Limit<Bytes>; readonly to: Limit<Bytes> }
  | { readonly kind: 'pod-cpu'; readonly from: CpuMax; readonly to: CpuMax }
  | { readonly kind: 'pod-weight'; readonly from: CpuWeight; readonly to: CpuWeight }
  | { readonly kind: 'pod-unified'; readonly key: string; readonly from: string; readonly to: string }
  | { readonly kind: 'runtime' };
