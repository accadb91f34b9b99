import { isSameLimit } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes } from '../../core/quantities/index.ts';

/** The page size of most machines, in bytes. With larger pages a limit may seem changed when it is not: one needless write. */
export const PAGE = bytes(4096);

/** Returns a negative number, 0 or a positive number when `a` is lower than, equal to or higher than `b`. */
export function compareLimits(a: Limit<Bytes>, b: Limit<Bytes>): number {
  if (a === b) return 0;
  if (a === 'max') return 1;
  if (b === 'max') return -1;
  return a - b;
}

/**
 * Returns a negative number, 0 or a positive number when `a` is a lower, the same or a higher rate than `b`, with any periods. Not
 * for limits that {@link sameCpu} finds equal: two absent limits give NaN.
 */
export const compareCpu = (a: CpuMax, b: CpuMax): number => rateOf(a) - rateOf(b);

const rateOf = ({ quota, period }: CpuMax): number => (quota === 'max' ? Infinity : quota / period);

/** Whether the kernel has `found` after `asked` is written: it rounds a limit down to whole pages. */
export const sameMemory = (found: Limit<Bytes>, asked: Limit<Bytes>): boolean => isSameLimit(asked, found, PAGE);

/** Whether two CPU limits are equal. Without a quota, the period does not matter. */
export const sameCpu = (a: CpuMax, b: CpuMax): boolean =>
  a.quota === b.quota && (a.quota === 'max' || a.period === b.period);
