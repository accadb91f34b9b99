/**
 * kubelet's formulas for memory QoS (feature gate MemoryQoS, cgroup v2): kubelet pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
 * generateLinuxContainerResources, 1.27 to 1.36. 1.37 uses the formula for the cgroups of pods too (ApplyPodLevelMemoryHigh). Pure.
 */
import { type Bytes, bytes } from '../core/quantities/index.ts';

/** memoryThrottlingFactor in kubelet's configuration, if nothing else is configured. kubelet accepts more than 0 and at most 1. */
export const DEFAULT_THROTTLING_FACTOR = 0.9;

/** What memory.high is derived from. A container without a limit has what the node has for pods instead. */
export interface MemoryAmounts {
  /** 0: no request. */
  readonly request: Bytes;
  readonly limit: Bytes;
}

/**
 * Returns the memory.high that kubelet sets: the request and this part of what is between request and limit, in whole pages. Undefined
 * where kubelet sets none: for a request equal to the limit, and where the result is not above the request.
 */
export function memoryHighOf({ request, limit }: MemoryAmounts, factor: number, pageSize: Bytes): Bytes | undefined {
  if (request === limit) return undefined;
  const high = Math.floor(Math.floor(request + (limit - request) * factor) / pageSize) * pageSize;
  return high > request ? bytes(high) : undefined;
}

/**
 * Returns the factor of at most two decimals with which kubelet sets this memory.high: the default one, or the only other one.
 * Undefined when there is none, or several.
 */
export function throttlingFactorOf(high: Bytes, amounts: MemoryAmounts, pageSize: Bytes): number | undefined {
  const leadsToHigh = (factor: number): boolean => memoryHighOf(amounts, factor, pageSize) === high;
  if (leadsToHigh(DEFAULT_THROTTLING_FACTOR)) return DEFAULT_THROTTLING_FACTOR;
  const [factor, ...others] = Array.from({ length: 100 }, (_, index) => (index + 1) / 100).filter(leadsToHigh);
  return others.length === 0 ? factor : undefined;
}
