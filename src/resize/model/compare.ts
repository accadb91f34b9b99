import { isSameLimit } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes } from '../../core/quantities/index.ts';

/** Which of two limits is the higher, and when two are one to the kernel. */

/** A page of most machines, in bytes. Where pages are larger, more is taken for a change than is one: a write too many. */
export const PAGE = bytes(4096);

/** Negative, zero or positive as `a` is lower than, equal to or higher than `b`. */
export function compareLimits(a: Limit<Bytes>, b: Limit<Bytes>): number {
  if (a === b) return 0;
  if (a === 'max') return 1;
  if (b === 'max') return -1;
  return a - b;
}

/**
 * Negative, zero or positive as `a` is a lower, the same or a higher rate than `b`, whatever their periods. For limits that
 * are not the same: of two that are none there is nothing to compare.
 */
export const compareCpu = (a: CpuMax, b: CpuMax): number => rateOf(a) - rateOf(b);

const rateOf = ({ quota, period }: CpuMax): number => (quota === 'max' ? Infinity : quota / period);

/** Whether the kernel, which rounds a limit down to whole pages, has `found` when `asked` is written. */
export const sameMemory = (found: Limit<Bytes>, asked: Limit<Bytes>): boolean => isSameLimit(asked, found, PAGE);

/** Whether two are the same limit. Without a quota a period says nothing. */
export const sameCpu = (a: CpuMax, b: CpuMax): boolean =>
  a.quota === b.quota && (a.quota === 'max' || a.period === b.period);
