/**
 * kubelet's formula for the swap of containers (memorySwap.swapBehavior LimitedSwap, cgroup v2): kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior and calcSwapForBurstablePods, 1.28 to 1.36. Pure.
 */
import { type Bytes, type Limit, bytes } from '../core/quantities/index.ts';

/** What memory.swap.max is derived from. */
export interface SwapAmounts {
  /** 0: no request. Undefined: not known. */
  readonly request: Bytes | undefined;
  /** Undefined: no limit. */
  readonly limit: Bytes | undefined;
}

/**
 * Returns the memory.swap.max that kubelet sets with a resize: in proportion to the request (request / memory of the node * swap of the
 * node), and 0 if request and limit are equal or both absent. The QoS class, which counts too, does not change with a resize. 0 if the
 * present value is not kubelet's, and where a request is not known: a decrease must not depend on swap that may be taken.
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
