import { type CgroupPath, type CgroupTree, type MemoryUse, usageText, withoutSwap } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Subject } from '../../sandbox/index.ts';
import { compareLimits } from '../model/index.ts';

/**
 * KEP-1287: a memory limit is not lowered below what is in use. Returns whether reclaim cannot get the usage below `wanted`: the
 * OOM killer would then act (kernel cgroup-v2, memory.max).
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
  /** Whether the change must not depend on swap: it takes swap from the cgroup, or must not fail. What is in swap counts, too. */
  readonly withoutSwap?: boolean | undefined;
}

/** Returns the memory in use when {@link isBelowUnreclaimable}. Throws CGROUP_UNAVAILABLE when it cannot be read. */
export async function blockingUse(
  tree: CgroupTree,
  { cgroup, now, wanted, ...change }: LimitChange,
): Promise<MemoryUse | undefined> {
  if (wanted === 'max' || compareLimits(wanted, now) >= 0) return undefined;
  const isWithoutSwap = change.withoutSwap === true;
  const swapped = isWithoutSwap ? tree.readSwapCurrent(cgroup) : 0;
  // Unreclaimable memory is part of these, which are usually below the new limit already.
  if (tree.readMemoryCurrent(cgroup) + swapped < wanted) return undefined;
  const found = await tree.readMemoryUse(cgroup);
  const use = isWithoutSwap ? withoutSwap(found) : found;
  return isBelowUnreclaimable(wanted, now, use) ? use : undefined;
}

/** Throws MEMORY_NOT_RECLAIMABLE, with the figures, when {@link isBelowUnreclaimable}. */
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
