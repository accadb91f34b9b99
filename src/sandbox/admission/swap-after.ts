import type { CgroupPath, SwapLimits } from '../../cgroups/index.ts';
import { bytes } from '../../core/index.ts';
import { compareLimits } from '../plan/amounts.ts';
import { sizeIn } from '../plan/memory-qos-change.ts';
import type { Change } from '../plan/step.ts';
import { SWAP_MAX } from '../pods/stored-limits.ts';

/**
 * Returns the limit on swap that a change of memory.swap.max lowers, by cgroup; undefined if the cgroup keeps the swap
 * that it has. A size with a suffix, which neither the kernel prints nor kubelet writes, counts as none.
 */
export function swapAfter(cgroup: CgroupPath, change: Change<string> | undefined): SwapLimits | undefined {
  if (change === undefined || change.from === change.to) return undefined;
  const [now, then = bytes(0)] = [change.from, change.to].map((text) => sizeIn({ [SWAP_MAX]: text }, SWAP_MAX));
  return now === undefined || compareLimits(then, now) < 0 ? new Map([[cgroup, then]]) : undefined;
}
