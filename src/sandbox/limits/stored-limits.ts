import { DEFAULT_CPU_PERIOD, cpuMaxOfCri, memoryMaxOfCri } from '../../cgroups/index.ts';
import { type CpuShares, cpuShares, reportedShares } from '../../core/quantities/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import { settingsIn, swapIn } from './container-settings.ts';
import type { EffectiveLimits, Limits, Settings } from './limits.ts';

/** What a CRI message sets for a container. */
export interface StoredValues extends EffectiveLimits, Pick<Limits, 'swap'> {
  /** Unclamped, as the runtime stores them. 0: none. */
  readonly shares: CpuShares;
  readonly settings: Settings;
}

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
