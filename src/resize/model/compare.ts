import { isSameLimit } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type Limit, PAGE_SIZE } from '../../core/quantities/index.ts';

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
export const sameMemory = (found: Limit<Bytes>, asked: Limit<Bytes>): boolean => isSameLimit(asked, found, PAGE_SIZE);

/** Whether two CPU limits are equal. Without a quota, the period does not matter. */
export const sameCpu = (a: CpuMax, b: CpuMax): boolean =>
  a.quota === b.quota && (a.quota === 'max' || a.period === b.period);
