import type { Bytes, CpuWeight } from '../../core/quantities/index.ts';
import type { Limits } from '../../sandbox/index.ts';

/** Limits of a container or a pod, with its memory request, which no cgroup has. */
export interface KnownLimits extends Limits {
  readonly memoryRequest?: Bytes;
}

/** Limits of a pod: its own cgroup has a weight too. */
export interface PodLimits extends KnownLimits {
  readonly weight?: CpuWeight;
}

/** Values of one pod as far as they are known. Containers by id, volumes by name. */
export interface KnownValues<Size> {
  readonly pod?: PodLimits;
  readonly containers?: ReadonlyMap<string, KnownLimits>;
  readonly volumes?: ReadonlyMap<string, Size>;
}
