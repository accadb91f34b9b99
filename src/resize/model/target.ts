import type { Bytes, CpuMax, CpuWeight, Limit } from '../../core/quantities/index.ts';
import type { ContainerLimits, PodState } from '../../sandbox/index.ts';

/** A key of CRI's `unified`: a file of the pod's cgroup, with its present and its new content. */
export interface UnifiedChange {
  readonly key: string;
  readonly from: string;
  readonly to: string;
}

/** The values that a pod has at the end of a resize. Absent values stay as they are. */
export interface PodTarget {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly weight?: CpuWeight;
  /** Keys that resource fields do not cover. */
  readonly unified?: readonly UnifiedChange[];
  /** Containers that the shim updates by calls of its own. */
  readonly containers?: readonly ContainerLimits[];
  /** The caller's own call that is forwarded as one of the steps: a container's update, the pod's update, or none. */
  readonly call: 'container' | 'pod' | 'none';
  /** What the caller's own update of a container sets. */
  readonly asked?: ContainerLimits | undefined;
  readonly volumes: ReadonlyMap<string, Bytes>;
}

/** Returns the pod's state after a resize to `target`. */
export function stateAfter(
  state: PodState,
  { memory, cpu, weight, containers = [], volumes }: Omit<PodTarget, 'call' | 'asked' | 'unified'>,
): PodState {
  return {
    ...state,
    ...(memory !== undefined && { memory }),
    ...(cpu !== undefined && { cpu }),
    ...(weight !== undefined && { weight }),
    containers: state.containers.map((container) => ({
      ...container,
      ...containers.find(({ id }) => id === container.id),
    })),
    volumes: state.volumes.map((volume) => ({ ...volume, size: volumes.get(volume.name) ?? volume.size })),
  };
}
