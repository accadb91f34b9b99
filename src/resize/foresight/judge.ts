import type { MemoryUse } from '../../cgroups/index.ts';
import { type Bytes, bytes } from '../../core/quantities/index.ts';

/** Whether kubelet would lower a memory limit, and what can be done about it. The figures alone: no clock, no file. */

const MI = 1024 * 1024;

export type Verdict =
  /** kubelet lowers it: less is in use than the limit. */
  | { readonly kind: 'fits' }
  /** kubelet refuses; it would not, once use is down to `goal`. */
  | { readonly kind: 'reclaim'; readonly goal: Bytes }
  /** kubelet refuses, and reclaim cannot help. */
  | { readonly kind: 'stuck' };

/**
 * How far below the limit use is brought: room for what is taken until kubelet looks again, which may be a minute. The larger of
 * 5 % and 8 MiB.
 */
export const marginOf = (limit: Bytes): Bytes => bytes(Math.max(Math.ceil(limit / 20), 8 * MI));

/** kubelet 1.34 and later refuse a limit at or below what is in use, page cache included. */
export function judge(limit: Bytes, { current, unreclaimable }: Pick<MemoryUse, 'current' | 'unreclaimable'>): Verdict {
  if (current < limit) return { kind: 'fits' };
  const goal = limit - marginOf(limit);
  return unreclaimable >= goal ? { kind: 'stuck' } : { kind: 'reclaim', goal: bytes(goal) };
}

/** How long a decrease that kubelet has admitted is helped, in milliseconds. */
export const HELP_MS = 600_000;

/**
 * How often it is looked whether what is in use is still under the limit, in milliseconds. The kernel tells nobody when use
 * climbs: memory.events, all that can be watched, counts what goes wrong.
 */
export const LOOK_MS = 1000;

/** How long to wait after so many times that use was brought down, or could not be, in milliseconds. */
export const backoffMs = (times: number): number => Math.min(30_000, 1000 * 2 ** Math.max(0, times - 1));

/** At most so much in a second on the whole node, in bytes, and a quarter of the time. */
const MOST_A_SECOND = 512 * MI;

/** How long nobody reclaims after a step that has freed so much and taken so long, in milliseconds. */
export const restMs = (freed: number, ms: number): number =>
  Math.ceil(Math.max(3 * ms, (freed / MOST_A_SECOND) * 1000));

/** Steps in a row that free nothing: the rest does not come free for now (dirty pages, say). */
export const MOST_IDLE_STEPS = 8;
/** How long to wait after so many of them, in milliseconds: pages that are being written back come free soon. */
export const idleMs = (steps: number): number => Math.min(800, 50 * 2 ** Math.max(0, steps - 1));
