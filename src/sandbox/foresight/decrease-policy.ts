import type { MemoryUse } from '../../cgroups/index.ts';
import { type Bytes, backOff, bytes, MiB } from '../../core/index.ts';
import { isBelowUnreclaimable } from '../admission/memory-in-use.ts';

/** Whether kubelet would apply a memory decrease, and the timing of holds. Pure: no clock, no file. */

const MINUTE = 60_000;

export type Assessment =
  /** kubelet applies the decrease: usage is below the new limit. */
  | 'fits'
  /** kubelet rejects the decrease until usage is reclaimed and held below the limit. */
  | 'blocked'
  /** kubelet or the shim rejects the decrease, and too much memory is unreclaimable. */
  | 'stuck';

/**
 * Returns the unreclaimable memory, in bytes, from which on usage cannot be held below a limit: the limit less the
 * larger of 1/64 of the limit and 2 MiB. With a smaller margin, the processes could hardly run, and kubelet would
 * sometimes measure usage above the limit.
 */
export const stuckFrom = (limit: Bytes): Bytes => bytes(Math.max(0, limit - Math.max(Math.ceil(limit / 64), 2 * MiB)));

/**
 * Assesses one memory decrease. kubelet 1.34 and later reject a limit at or below usage, page cache included ("memory
 * limit (...) below current usage (...)", kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go,
 * validateMemoryResizeAction). kubelet ignores swap: if the decrease also removes swap, kubelet tries, and the shim
 * rejects the update by the same rule.
 */
export function assessDecrease(
  limit: Bytes,
  { current, unreclaimable }: Pick<MemoryUse, 'current' | 'unreclaimable'>,
): Assessment {
  if (isBelowUnreclaimable(limit, 'max', { unreclaimable })) return 'stuck';
  if (current < limit) return 'fits';
  return unreclaimable >= stuckFrom(limit) ? 'stuck' : 'blocked';
}

/** How long the shim helps with one admitted decrease, in milliseconds. */
export const RECLAIM_PERIOD_MS = 10 * MINUTE;

/** Interval to repeat a report with new figures, in milliseconds, because figures become stale. */
export const REPORT_AGAIN_MS = 5 * MINUTE;

/** Maximum time to bring usage below the limits, in milliseconds: dirty pages have to be written to a disk first. */
export const REACH_MS = 30_000;

/**
 * Maximum time to hold usage below the limits, in milliseconds. kubelet retries every 10 to 15 s, with a figure that
 * cAdvisor has measured up to 15 s before.
 */
export const HOLD_MS = MINUTE;

/**
 * Interval of the checks whether usage is still below the new limit, in milliseconds. Polled, because the kernel has no
 * notification for rising usage below the limit: memory.events only counts reclaim and OOM events.
 */
export const CHECK_INTERVAL_MS = 1000;

/**
 * Ends a hold if all checks find usage at or above a limit for this long although memory.high is below it, in
 * milliseconds: the third check at the usual interval. A time and not a number of checks, because kubelet's writes also
 * trigger checks, many per second on a node with many pods.
 */
export const CLIMB_MS = 2.5 * CHECK_INTERVAL_MS;

/** Reports if usage stays at or above a limit and does not fall for this long during reclaim, in milliseconds. */
export const STALL_MS = 2.5 * CHECK_INTERVAL_MS;

/** Failed kubelet updates in a row before they are reported and kubelet no longer waits. One may be coincidence. */
export const MAX_REFUSALS = 2;

/** Number of holds in a row that another program ended by raising memory.high, before that is reported. */
export const MAX_LOSSES = 3;

/**
 * Returns how long to wait after this number of attempts, in milliseconds. In the first minute after the admission, at
 * most 5 s: the Vertical Pod Autoscaler evicts a pod at its next round, one minute later by default.
 */
export const backoffMs = (times: number, sinceMs: number): number =>
  backOff(times, 1000, sinceMs < MINUTE ? 5000 : 30_000);
