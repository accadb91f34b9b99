import { type CgroupPath, type CgroupTree, type MemoryUse, type SwapLimits, usageText } from '../../cgroups/index.ts';
import { type Bytes, Code, type Limit, Reason, ShimError } from '../../core/index.ts';
import { compareLimits } from '../plan/amounts.ts';
import type { Subject } from '../pods/names.ts';

/**
 * KEP-1287: a memory limit is not lowered below what is in use. Returns whether reclaim cannot get the usage below
 * `wanted`: the OOM killer would then act (kernel cgroup-v2, memory.max).
 */
export function isBelowUnreclaimable(
  wanted: Limit<Bytes>,
  now: Limit<Bytes>,
  use: Pick<MemoryUse, 'unreclaimable'>,
): boolean {
  const lowered = wanted !== 'max' && compareLimits(wanted, now) < 0;
  return lowered && use.unreclaimable >= wanted;
}

/** A memory limit of a cgroup, now and after the change. */
export interface LimitChange {
  readonly cgroup: CgroupPath;
  readonly now: Limit<Bytes>;
  readonly wanted: Limit<Bytes>;
  /** The swap limits to assume after the change, as far as they become lower. */
  readonly swapAfter?: SwapLimits | undefined;
}

/** Returns the memory in use if {@link isBelowUnreclaimable} is true. Throws CGROUP_UNAVAILABLE if it is unreadable. */
export async function blockingUse(
  tree: CgroupTree,
  { cgroup, now, wanted, swapAfter }: LimitChange,
): Promise<MemoryUse | undefined> {
  if (wanted === 'max' || compareLimits(wanted, now) >= 0) return undefined;
  // A cheap check first: unreclaimable memory is part of this sum, which usually is below the new limit.
  if (tree.readMemoryCurrent(cgroup) + tree.readSwapCurrent(cgroup) < wanted) return undefined;
  const use = await tree.readMemoryUse(cgroup, swapAfter);
  return isBelowUnreclaimable(wanted, now, use) ? use : undefined;
}

/** Throws MEMORY_NOT_RECLAIMABLE if {@link isBelowUnreclaimable} is true. Counts files in volumes (KEP-6030). */
export async function assertReclaimable(tree: CgroupTree, { text, ids }: Subject, change: LimitChange): Promise<void> {
  const use = await blockingUse(tree, change);
  if (use === undefined) return;
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.MEMORY_NOT_RECLAIMABLE,
    `${text}: memory.max cannot be lowered from ${change.now} to ${change.wanted}: ${use.unreclaimable} bytes are in use ` +
      `that cannot be reclaimed (${usageText(use)}, of ${use.current} in all)`,
    { ...ids, file: 'memory.max', asked: String(change.wanted), found: String(use.unreclaimable) },
  );
}
