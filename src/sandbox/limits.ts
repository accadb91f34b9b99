import type { Bytes, CpuMax, CpuShares, Limit } from '../core/quantities/index.ts';

/**
 * Limits of a pod or a container, and CPU shares, the only request that the kernel knows. An absent value is not known, not asked
 * for or not changed; `max` is no limit.
 */
export interface Limits {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly shares?: CpuShares;
}

/** Limits in force: memory and CPU are both known. */
export interface EffectiveLimits extends Limits {
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
}

/** Limits of one container, by its id. */
export interface ContainerLimits extends Limits {
  readonly id: string;
}
