import {
  type CgroupPath,
  type CgroupTree,
  type SwapLimits,
  isCgroupVanished,
  lowerUsage,
} from '../../cgroups/index.ts';
import { steadyNow } from '../../core/concurrency/index.ts';
import { Reason, ShimError } from '../../core/errors/index.ts';
import type { Counters, Log, ReclaimOutcome } from '../../observe/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Subject } from '../../sandbox/index.ts';
import { type Change, compareLimits } from '../model/index.ts';

/** The time reserved for a rollback, in milliseconds. */
export const ROLLBACK_MS = 2000;

/**
 * Returns until when memory may be reclaimed for a call, by {@link steadyNow}: the caller's deadline or the configured
 * maximum, less the time of a rollback. That takes at most half of a short deadline (crictl: 2 s).
 */
export function reclaimBy(parts: { readonly reclaimTimeout: number }, deadline = Infinity): number {
  const now = steadyNow();
  const left = Math.max(0, Math.min(deadline - now, parts.reclaimTimeout));
  return now + left - Math.min(ROLLBACK_MS, left / 2);
}

/** Awaited before a cgroup's memory.high is lowered: journals the previous value, to be restored. */
export type OnHigh = (cgroup: CgroupPath, previous: Limit<Bytes>) => Promise<void>;

/** A change of a cgroup's memory limit. */
export interface MemoryChange extends Subject {
  readonly cgroup: CgroupPath;
  readonly memory: Change<Limit<Bytes>>;
  /** The memory.high that is set with the limit. Without it, memory.high stays as it is. */
  readonly high?: Limit<Bytes> | undefined;
  /** The limits on swap that are set with the limit. What is in swap above them counts as memory in use. */
  readonly swapAfter?: SwapLimits | undefined;
}

/**
 * KEP-1287: a memory limit is lowered only when usage is below it. Runs `set`, which sets a memory limit, once reclaim has got the
 * usage below it (kernel cgroup-v2, memory.reclaim and memory.high), or at once when the limit is not lowered. Throws
 * MEMORY_NOT_RECLAIMABLE or RECLAIM_TIMEOUT before `set` runs, and what `set` throws.
 */
export async function lowerMemory(
  parts: { readonly tree: CgroupTree; readonly log: Log; readonly counters: Counters },
  { text, ids, cgroup, memory, high, swapAfter }: MemoryChange,
  deadline: number,
  set: () => Promise<void>,
  onHigh?: OnHigh,
): Promise<void> {
  if (memory.to === 'max' || compareLimits(memory.to, memory.from) >= 0) return set();
  const progress = { isSetting: false };
  const start = performance.now();
  const reclaimed = (outcome: ReclaimOutcome): void => parts.counters.reclaim(outcome, performance.now() - start);
  try {
    const lower = (): Promise<void> => {
      progress.isSetting = true;
      reclaimed('done');
      return set();
    };
    const { before, reached, reclaims, oomKills } = await lowerUsage(parts.tree, cgroup, {
      target: memory.to,
      deadline,
      lower,
      newHigh: high,
      swapAfter,
      ...(onHigh && { onHigh: (previous) => onHigh(cgroup, previous) }),
    });
    const fields = { ...ids, target: memory.to, before: before.current, reached: reached.current };
    if (reclaims > 0) parts.log.info({ ...fields, reclaims }, 'memory reclaimed');
    if (oomKills > 0) parts.counters.oomKills(oomKills);
    if (oomKills > 0) parts.log.warn({ ...fields, oomKills }, 'OOM kill while a memory limit was lowered');
  } catch (error) {
    // The cgroup has just ended: nothing is in use, and `set` reports that.
    if (!progress.isSetting && isCgroupVanished(error)) return set();
    if (progress.isSetting) throw error;
    reclaimed(reclaimOutcomeOf(error));
    throw named(error, text, ids);
  }
}

function reclaimOutcomeOf(error: unknown): ReclaimOutcome {
  if (!(error instanceof ShimError)) return 'failed';
  if (error.reason === Reason.MEMORY_NOT_RECLAIMABLE) return 'not_reclaimable';
  return error.reason === Reason.RECLAIM_TIMEOUT ? 'timeout' : 'failed';
}

/** Adds the pod and the container to an error that names only the cgroup's path. */
function named(error: unknown, text: string, ids: MemoryChange['ids']): unknown {
  const isOurs =
    error instanceof ShimError &&
    (error.reason === Reason.MEMORY_NOT_RECLAIMABLE || error.reason === Reason.RECLAIM_TIMEOUT);
  if (!isOurs) return error;
  const context = { ...error.context, ...ids };
  return new ShimError(error.code, error.reason, `${text}: ${error.message}`, context, { cause: error });
}
