import type { Bytes, CpuMax, CpuShares, Limit } from '../../core/quantities/index.ts';

/** Contents of files of a container's cgroup by name: `unified` keys, `cpuset.cpus`, `cpuset.mems`, `hugetlb.<size>.max`. */
export type Settings = Readonly<Record<string, string>>;

/**
 * Limits of a pod or a container, and CPU shares, the only request that the kernel knows. An absent value is not known, not asked
 * for or not changed; `max` is no limit.
 */
export interface Limits {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly shares?: CpuShares;
  /** memory.swap.max of a container for which the runtime stores it as the sum with memory; otherwise it is one of the settings. */
  readonly swap?: Limit<Bytes>;
  /** Other settings of a container, as they are written. */
  readonly settings?: Settings;
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
