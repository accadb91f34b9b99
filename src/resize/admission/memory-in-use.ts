import type { CgroupPath, CgroupTree, MemoryUse } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { compareLimits } from '../model/index.ts';

/** What is looked at before anything changes. */

/** Whether a memory limit cannot be lowered to `wanted`: reclaim could not get the use under it, and the kernel kills. */
export function isBelowUnreclaimable(
  wanted: Limit<Bytes>,
  now: Limit<Bytes>,
  use: Pick<MemoryUse, 'unreclaimable'>,
): boolean {
  const lowered = wanted !== 'max' && compareLimits(wanted, now) < 0;
  return lowered && use.unreclaimable >= wanted;
}

/** A memory limit of a cgroup, and what it shall become. */
export interface LimitChange {
  readonly cgroup: CgroupPath;
  readonly now: Limit<Bytes>;
  readonly wanted: Limit<Bytes>;
}

/** What is in use, when {@link isBelowUnreclaimable}. Throws CGROUP_UNAVAILABLE as reading it does. */
export async function blockingUse(
  tree: CgroupTree,
  { cgroup, now, wanted }: LimitChange,
): Promise<MemoryUse | undefined> {
  if (wanted === 'max' || compareLimits(wanted, now) >= 0) return undefined;
  // What cannot be reclaimed is a part of what is in use. Mostly all of that is less already.
  if (tree.readMemoryCurrent(cgroup) < wanted) return undefined;
  const use = await tree.readMemoryUse(cgroup);
  return isBelowUnreclaimable(wanted, now, use) ? use : undefined;
}

/**
 * Throws MEMORY_NOT_RECLAIMABLE, with the figures, when {@link isBelowUnreclaimable}. `whose` is `container web` or `pod default/web`.
 */
export async function assertReclaimable(
  tree: CgroupTree,
  whose: { readonly text: string; readonly pod?: string; readonly container?: string },
  change: LimitChange,
): Promise<void> {
  const use = await blockingUse(tree, change);
  if (use === undefined) return;
  const { text, ...ids } = whose;
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.MEMORY_NOT_RECLAIMABLE,
    `${text}: memory.max cannot be lowered from ${change.now} to ${change.wanted}: ${use.unreclaimable} bytes are in use ` +
      `that cannot be reclaimed (anon ${use.anon}, shmem ${use.shmem}, unevictable ${use.unevictable}, of ${use.current} in all)`,
    { ...ids, file: 'memory.max', asked: String(change.wanted), found: String(use.unreclaimable) },
  );
}
