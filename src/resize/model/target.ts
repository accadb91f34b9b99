import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit } from '../../core/quantities/index.ts';

/** What one container is asked to become. What is absent stays as it is. */
export interface ContainerWish {
  readonly id: string;
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly shares?: CpuShares;
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
