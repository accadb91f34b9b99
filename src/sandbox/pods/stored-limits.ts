import {
  type CgroupPath,
  type CgroupTree,
  cpuMaxOfCri,
  DEFAULT_CPU_PERIOD,
  isMarkedHigh,
  isUnifiedKey,
  memoryMaxOfCri,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import { type Bytes, type CpuShares, cpuShares, type Limit, reportedShares } from '../../core/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import type { EffectiveLimits, Limits, Settings } from './pod-state.ts';

/** The values that a CRI message sets for a container. */
export interface StoredValues extends EffectiveLimits, Pick<Limits, 'swap'> {
  /** Unclamped, as the runtime stores them. 0: none. */
  readonly shares: CpuShares;
  readonly settings: Settings;
}

/** The limits in a CRI message, with which a container starts. Undefined without resources or if invalid. */
export function storedLimits(resources: LinuxContainerResources | null | undefined): EffectiveLimits | undefined {
  if (resources === null || resources === undefined) return undefined;
  try {
    const cpu = cpuMaxOfCri(resources.cpu_quota, resources.cpu_period, undefined);
    return {
      memory: memoryMaxOfCri(resources.memory_limit_in_bytes) ?? 'max',
      cpu: cpu ?? { quota: 'max', period: DEFAULT_CPU_PERIOD },
    };
  } catch {
    // The runtime rejects the value too, and reports it to its caller.
    return undefined;
  }
}

/** The values in a CRI message. Undefined where {@link storedLimits} is. */
export function storedValues(resources: LinuxContainerResources | null | undefined): StoredValues | undefined {
  const limits = storedLimits(resources);
  if (limits === undefined) return undefined;
  const swap = swapIn(resources);
  return {
    ...limits,
    shares: reportedShares(resources?.cpu_shares ?? 0n) ?? cpuShares(0),
    ...(swap !== undefined && { swap }),
    settings: settingsIn(resources),
  };
}

/** The file of the swap limit. CRI has this limit as the sum of memory and swap, and also as a key of `unified`. */
export const SWAP_MAX = 'memory.swap.max';

/** Returns the files that a CRI message sets by `unified`, cpusets and hugepage limits. */
export function settingsIn(resources: LinuxContainerResources | null | undefined): Settings {
  if (resources === null || resources === undefined) return {};
  const { unified, cpuset_cpus, cpuset_mems, hugepage_limits } = resources;
  return {
    ...(cpuset_cpus !== '' && { 'cpuset.cpus': cpuset_cpus }),
    ...(cpuset_mems !== '' && { 'cpuset.mems': cpuset_mems }),
    // containerd appends to its list with each update: the last one of a size counts.
    ...Object.fromEntries(hugepage_limits.map(({ page_size, limit }) => [`hugetlb.${page_size}.max`, String(limit)])),
    // Runtimes write `unified` last.
    ...Object.fromEntries(Object.entries(unified).filter(([key]) => isUnifiedKey(key))),
  };
}

/** Returns the swap limit in a CRI message. Undefined when it has none, an invalid one, or one in `unified`. */
export function swapIn(resources: LinuxContainerResources | null | undefined): Limit<Bytes> | undefined {
  if (resources === null || resources === undefined || SWAP_MAX in resources.unified) return undefined;
  try {
    const memory = memoryMaxOfCri(resources.memory_limit_in_bytes) ?? 'max';
    return swapMaxOfCri(resources.memory_swap_limit_in_bytes, memory);
  } catch {
    // The runtime rejects the value too.
    return undefined;
  }
}

/** Reads files of a container's cgroup. Omits those that the kernel lacks, and a temporary memory.high. */
export function readSettings(tree: CgroupTree, cgroup: CgroupPath, keys: readonly string[]): Settings {
  return Object.fromEntries(
    keys.flatMap((key): [string, string][] => {
      const found = tree.readSetting(cgroup, key);
      if (found === undefined || (key === 'memory.high' && isMarkedHigh(tree.readHigh(cgroup)))) return [];
      return [[key, found]];
    }),
  );
}
