import type { MemoryUse } from '../../cgroups/index.ts';
import { type Bytes, bytes } from '../../core/quantities/index.ts';

/** Whether kubelet would apply a memory decrease, and the timing of reclaim. Pure: no clock, no file. */

const MI = 1024 * 1024;

export type Assessment =
  /** kubelet applies the decrease: usage is below the new limit. */
  | { readonly kind: 'fits' }
  /** kubelet rejects the decrease until usage is reclaimed down to `goal`. */
  | { readonly kind: 'reclaim'; readonly goal: Bytes }
  /** kubelet rejects the decrease, and too much memory is unreclaimable. */
  | { readonly kind: 'stuck' };

/**
 * Returns how far below the limit to reclaim, in bytes: the larger of 5 % of the limit and 8 MiB. It leaves space for
 * allocations until kubelet checks again, which may take a minute.
 */
export const marginOf = (limit: Bytes): Bytes => bytes(Math.max(Math.ceil(limit / 20), 8 * MI));

/**
 * Assesses one memory decrease. kubelet 1.34 and later reject a limit at or below usage, page cache included ("memory limit (...)
 * below current usage (...)", kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, validateMemoryResizeAction).
 */
export function assessDecrease(
  limit: Bytes,
  { current, unreclaimable }: Pick<MemoryUse, 'current' | 'unreclaimable'>,
): Assessment {
  if (current < limit) return { kind: 'fits' };
  const goal = limit - marginOf(limit);
  return unreclaimable >= goal ? { kind: 'stuck' } : { kind: 'reclaim', goal: bytes(goal) };
}

/** How long memory is reclaimed for one admitted decrease, in milliseconds. */
export const RECLAIM_PERIOD_MS = 600_000;

/**
 * Interval of the checks whether usage is still below the new limit, in milliseconds. Polled, because the kernel has no
 * notification for rising usage below the limit: memory.events only counts reclaim and OOM events.
 */
export const CHECK_INTERVAL_MS = 1000;

/** Returns how long to wait after so many rounds of reclaim, successful or not, in milliseconds. */
export const backoffMs = (times: number): number => Math.min(30_000, 1000 * 2 ** Math.max(0, times - 1));

/** Maximum rate of reclaim on the node, in bytes per second. Reclaim also takes at most a quarter of the time. */
const MAX_BYTES_PER_SECOND = 512 * MI;

/** Returns how long reclaim pauses on the node after a step, in milliseconds, given its freed bytes and its duration. */
export const restMs = (freed: number, ms: number): number =>
  Math.ceil(Math.max(3 * ms, (freed / MAX_BYTES_PER_SECOND) * 1000));

/** Consecutive steps that free nothing before a round ends: the remaining pages are not reclaimable now, e.g. dirty. */
export const MAX_IDLE_STEPS = 8;
/** Returns how long to wait after so many idle steps, in milliseconds: pages under writeback become reclaimable soon. */
export const idleMs = (steps: number): number => Math.min(800, 50 * 2 ** Math.max(0, steps - 1));
