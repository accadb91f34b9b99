import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit } from '../../core/quantities/index.ts';

/** Limits and weights as far as they are known: what is absent was not asked for. */
export interface KnownLimits {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  /** The pod's own. */
  readonly weight?: CpuWeight;
  /** A container's. */
  readonly shares?: CpuShares;
}

/** Values of one pod. Containers by id, volumes by name. */
export interface KnownValues<Size> {
  readonly pod?: KnownLimits;
  readonly containers?: ReadonlyMap<string, KnownLimits>;
  readonly volumes?: ReadonlyMap<string, Size>;
}
