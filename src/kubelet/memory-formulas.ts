/**
 * kubelet's formulas for memory QoS (feature gate MemoryQoS, cgroup v2): kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources, 1.27 to 1.36. 1.37 uses the
 * formula for the cgroups of pods too (ApplyPodLevelMemoryHigh). Pure.
 */
import { type Bytes, bytes, type Limit } from '../core/quantities/numbers.ts';

/** kubelet's default for memoryThrottlingFactor. kubelet accepts more than 0 and at most 1. */
export const DEFAULT_THROTTLING_FACTOR = 0.9;

/** The input of memory.high. A container without a limit uses the node's memory for pods instead. */
export interface MemoryAmounts {
  /** 0: no request. */
  readonly request: Bytes;
  readonly limit: Bytes;
}

/**
 * Returns the memory.high that kubelet sets: the request plus this fraction of the difference between limit and
 * request, in whole pages. Undefined if kubelet sets none: the request equals the limit, or the result is not above the
 * request.
 */
export function memoryHighOf({ request, limit }: MemoryAmounts, factor: number, pageSize: Bytes): Bytes | undefined {
  if (request === limit) return undefined;
  const high = Math.floor(Math.floor(request + (limit - request) * factor) / pageSize) * pageSize;
  return high > request ? bytes(high) : undefined;
}

/**
 * Returns the throttling factor, with at most two decimals, for which kubelet sets this memory.high: the default
 * factor, or the only other match. Undefined if no factor or several other factors match.
 */
export function throttlingFactorOf(high: Bytes, amounts: MemoryAmounts, pageSize: Bytes): number | undefined {
  const leadsToHigh = (factor: number): boolean => memoryHighOf(amounts, factor, pageSize) === high;
  if (leadsToHigh(DEFAULT_THROTTLING_FACTOR)) return DEFAULT_THROTTLING_FACTOR;
  const [factor, ...others] = Array.from({ length: 100 }, (_, index) => (index + 1) / 100).filter(leadsToHigh);
  return others.length === 0 ? factor : undefined;
}

/**
 * kubelet's formula for the swap of containers (memorySwap.swapBehavior LimitedSwap, cgroup v2): kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior and calcSwapForBurstablePods, 1.28
 * to 1.36. Pure.
 */

/** The input of memory.swap.max. */
export interface SwapAmounts {
  /** 0: no request. Undefined: not known. */
  readonly request: Bytes | undefined;
  /** Undefined: no limit. */
  readonly limit: Bytes | undefined;
}

/**
 * Returns the memory.swap.max that kubelet sets with a resize: in proportion to the request (request / memory of the
 * node * swap of the node), and 0 if request and limit are equal or both absent. The formula also depends on the QoS
 * class, which a resize does not change. Also returns 0 if the present value is not kubelet's, or if a request is not
 * known: a decrease must not depend on swap that may be unavailable.
 *
 * @param now the present memory.swap.max. kubelet sets a size; without one, the runtime sets 0 with a memory limit
 * @param before the request that the present value is derived from; undefined if it is not known
 */
export function swapAfterResize(now: Limit<Bytes>, before: Bytes | undefined, after: SwapAmounts): Bytes {
  if (now === 'max' || before === undefined || after.request === undefined) return bytes(0);
  if (after.request === (after.limit ?? 0)) return bytes(0);
  if (after.request === before) return now;
  return before === 0 ? bytes(0) : bytes(Math.floor((now * after.request) / before));
}
