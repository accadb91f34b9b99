import type { CgroupPath, SwapLimits } from '../../cgroups/index.ts';
import { bytes } from '../../core/index.ts';
import { compareLimits } from '../plan/amounts.ts';
import { sizeIn } from '../plan/memory-qos-change.ts';
import type { Change } from '../plan/step.ts';
import { SWAP_MAX } from '../pods/stored-limits.ts';

/**
 * Returns the lower swap limit of a change of memory.swap.max, by cgroup. Undefined if the change does not lower it.
 * Ignores a size with a suffix: neither the kernel nor kubelet writes one.
 */
export function swapAfter(cgroup: CgroupPath, change: Change<string> | undefined): SwapLimits | undefined {
  if (change === undefined || change.from === change.to) return undefined;
  const [now, then = bytes(0)] = [change.from, change.to].map((text) => sizeIn({ [SWAP_MAX]: text }, SWAP_MAX));
  return now === undefined || compareLimits(then, now) < 0 ? new Map([[cgroup, then]]) : undefined;
}
