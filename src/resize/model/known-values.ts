import type { CpuWeight } from '../../core/quantities/index.ts';
import type { Limits } from '../../sandbox/index.ts';

/** Limits of a pod: its own cgroup has a weight too. */
export interface PodLimits extends Limits {
  readonly weight?: CpuWeight;
}

/** Values of one pod as far as they are known. Containers by id, volumes by name. */
export interface KnownValues<Size> {
  readonly pod?: PodLimits;
  readonly containers?: ReadonlyMap<string, Limits>;
  readonly volumes?: ReadonlyMap<string, Size>;
}
