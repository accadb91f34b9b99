import { DEFAULT_CPU_PERIOD, cpuMaxOfCri, memoryMaxOfCri } from '../cgroups/index.ts';
import type { LinuxContainerResources } from '../runtime/index.ts';
import type { Bytes, CpuMax, Limit } from '../core/quantities/index.ts';

/** The limits that a container starts with. */
export interface StoredLimits {
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
}

/** Those in a CRI message; undefined when it has none, or none with a meaning. */
export function storedLimits(resources: LinuxContainerResources | null | undefined): StoredLimits | undefined {
  if (resources === null || resources === undefined) return undefined;
  try {
    const cpu = cpuMaxOfCri(resources.cpu_quota, resources.cpu_period, undefined);
    return {
      memory: memoryMaxOfCri(resources.memory_limit_in_bytes) ?? 'max',
      cpu: cpu ?? { quota: 'max', period: DEFAULT_CPU_PERIOD },
    };
  } catch {
    // The runtime refuses it too, and tells its caller.
    return undefined;
  }
}
