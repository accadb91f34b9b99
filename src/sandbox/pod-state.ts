import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit } from '../core/quantities/index.ts';

/** What the kernel says of one running container. */
export interface ContainerState {
  readonly id: string;
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
  /** As the runtime has stored them. Undefined where nobody has asked: no rule of order goes by them. */
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
