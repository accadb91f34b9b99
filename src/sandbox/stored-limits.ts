import { DEFAULT_CPU_PERIOD, cpuMaxOfCri, memoryMaxOfCri } from '../cgroups/index.ts';
import type { LinuxContainerResources } from '../runtime/index.ts';
import type { EffectiveLimits } from './limits.ts';

/**
 * The limits in a CRI message: those that a container starts with. Undefined when the message has no resources or an invalid
 * value.
 */
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
