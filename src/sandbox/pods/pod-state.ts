import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit, Microseconds } from '../../core/quantities/numbers.ts';
import type { DeclaredPod } from './declared-pod.ts';

/** A running container with the limits that the kernel has for it. */
export interface LiveContainer extends EffectiveLimits {
  readonly id: string;
  /** The shares that the runtime stores. Undefined if they were not read: no ordering rule needs them. */
  readonly shares?: CpuShares;
  readonly burst?: Burst;
}

/** A memory-backed volume as it is mounted. */
export interface VolumeState {
  readonly name: string;
  readonly size: Bytes;
}

/** A mounted volume with the device number of its file system, `major:minor`. */
export interface MountedVolume extends VolumeState {
  readonly device: string;
}

/** cpu.max.burst. Absent if it is 0, or the kernel does not have it. */
export type Burst = Microseconds;

/** The live values of one pod, read before a plan is made. */
export interface PodState {
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
  /** Undefined without the cpu controller. */
  readonly weight: CpuWeight | undefined;
  readonly burst?: Burst;
  /** Pod overhead, which the pod limit adds to its containers' limits. CPU in terms of cpu.max; quota 0: none. */
  readonly overhead: { readonly memory: Bytes; readonly cpu: CpuMax };
  /** The running containers, without the sandbox's own. */
  readonly containers: readonly LiveContainer[];
  readonly volumes: readonly VolumeState[];
  /** The declared pod. Absent if it was not read: then only the running containers count. */
  readonly declared?: DeclaredPod;
  /** The cgroups are systemd units. systemd rounds a quota up to whole percents on each unit property change. */
  readonly inPercents?: true;
}

/** Container cgroup files by name: `unified` keys, `cpuset.cpus`, `cpuset.mems`, `hugetlb.<size>.max`. */
export type Settings = Readonly<Record<string, string>>;

/**
 * Limits of a pod or a container, and CPU shares, the only request that the kernel knows. An absent value is not known,
 * not requested or not changed; `max` is no limit.
 */
export interface Limits {
  readonly memory?: Limit<Bytes>;
  readonly cpu?: CpuMax;
  readonly shares?: CpuShares;
  /** memory.swap.max, if the runtime stores it as the sum with memory; otherwise it is one of the settings. */
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
