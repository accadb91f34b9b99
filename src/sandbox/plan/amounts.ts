/** CPU and memory quantities: read as Kubernetes writes them, converted for the kernel, and formatted. Pure. */
import {
  DEFAULT_CPU_PERIOD,
  isSameLimit,
  MAX_CPU_QUOTA,
  MIN_MEMORY_LIMIT,
} from '../../cgroups/values/controller-files.ts';
import { invalidValue, type ShimError } from '../../core/errors.ts';
import { parseMilli, parseQuantity } from '../../core/quantities/kubernetes.ts';
import type { Bytes, CpuMax, CpuShares, Limit } from '../../core/quantities/numbers.ts';
import { PAGE_SIZE } from '../../core/quantities/page-size.ts';
import { exactSize } from '../../core/quantities/sizes.ts';
import { exactMilliCpu, type MilliCpu, milliCpuToQuota, sharesToMilliCpu } from '../../kubelet/formulas.ts';
import type { Amounts } from '../pods/declared-pod.ts';

/**
 * Reads a CPU limit: undefined keeps it, `max` removes it. Throws INVALID_VALUE, which names `field` and the text.
 * Rejects 0, which Kubernetes reads as no limit, and CRI as no change.
 */
export function readCpuLimit(text: string, field: string): Limit<MilliCpu> | undefined {
  if (isRemoval(text)) return 'max';
  const milli = readMilliCpu(text, field, NO_ZERO_LIMIT);
  if (milli !== undefined && milli > MAX_MILLI_CPU) throw invalid(field, text, 'more than the kernel accepts');
  return milli;
}

/** Reads a CPU request: undefined keeps it, and it cannot be removed. Throws INVALID_VALUE as {@link readCpuLimit}. */
export function readCpuRequest(text: string, field: string): MilliCpu | undefined {
  return readMilliCpu(text, field, NO_ZERO_REQUEST);
}

/** Reads a memory limit: undefined keeps it, `max` removes it. Throws INVALID_VALUE as {@link readCpuLimit}. */
export function readMemoryLimit(text: string, field: string): Limit<Bytes> | undefined {
  if (isRemoval(text)) return 'max';
  const limit = readBytes(text, field, NO_ZERO_LIMIT);
  if (limit !== undefined && limit < MIN_MEMORY_LIMIT) {
    throw invalid(field, text, `less than a page of memory, ${MIN_MEMORY_LIMIT} bytes`);
  }
  return limit;
}

/** Reads a memory request. Undefined keeps it; it is not removable. Throws INVALID_VALUE as {@link readCpuLimit}. */
export function readMemoryRequest(text: string, field: string): Bytes | undefined {
  return readBytes(text, field, NO_ZERO_REQUEST);
}

/** Returns cpu.max of a limit, by kubelet's formula with the default period. */
export const cpuMaxOf = (limit: Limit<MilliCpu>): CpuMax => ({
  quota: limit === 'max' ? 'max' : milliCpuToQuota(limit, DEFAULT_CPU_PERIOD),
  period: DEFAULT_CPU_PERIOD,
});

/** Formats a CPU limit: `500m`, `2` or `max`; in millionths of a CPU, rounded up, where thousandths are not exact. */
export function formatCpuLimit({ quota, period }: CpuMax): string {
  if (quota === 'max') return 'max';
  const milli = exactMilliCpu(quota, period);
  return Number.isInteger(milli) ? formatMilli(milli) : `${Math.ceil(exactMilliCpu(quota * 1000, period))}u`;
}

/** Formats the CPU request that these shares come from. */
export const formatShares = (shares: CpuShares): string => formatMilli(sharesToMilliCpu(shares));

/** Formats a memory limit: `256Mi`, bytes where no unit is exact, or `max`. */
export const formatMemory = (limit: Limit<Bytes>): string => (limit === 'max' ? 'max' : exactSize(limit));

/** Formats milliCPU as {@link parseMilli} reads it. */
export const formatMilli = (milli: MilliCpu): string => (milli % 1000 === 0 ? `${milli / 1000}` : `${milli}m`);

/** Formats declared limits. An absent limit is an empty string. */
export const amountTexts = ({ memory, milliCpu }: Amounts): { readonly cpu: string; readonly memory: string } => ({
  cpu: milliCpu === undefined ? '' : formatMilli(milliCpu),
  memory: memory === undefined ? '' : formatMemory(memory),
});

/** The CPU limit with the largest quota that the kernel accepts. */
const MAX_MILLI_CPU: MilliCpu = exactMilliCpu(MAX_CPU_QUOTA, DEFAULT_CPU_PERIOD);
const NO_ZERO_LIMIT = 'use "max" to remove the limit';
const NO_ZERO_REQUEST = 'leave it out to keep the request';
const isRemoval = (text: string): boolean => text === '-1' || text === 'max';

const readMilliCpu = (text: string, field: string, noZero: string): MilliCpu | undefined =>
  number(text, field, parseMilli, { expected: 'expected a CPU quantity such as "500m" or "1.5"', noZero });

const readBytes = (text: string, field: string, noZero: string): Bytes | undefined =>
  number(text, field, parseQuantity, { expected: 'expected a memory quantity such as "256Mi"', noZero });

function number<Value extends number>(
  text: string,
  field: string,
  parse: (text: string) => Value | undefined,
  says: { readonly expected: string; readonly noZero: string },
): Value | undefined {
  if (text === '') return undefined;
  const value = parse(text);
  if (value === undefined) throw invalid(field, text, says.expected);
  if (value === 0) throw invalid(field, text, says.noZero);
  return value;
}

/** Returns an INVALID_VALUE error of a request of the resize API, with the path of the field. */
export const invalid = (field: string, value: string, why: string): ShimError =>
  invalidValue(field, value, why, { field });

/** Returns a negative number, 0 or a positive number when `a` is lower than, equal to or higher than `b`. */
export function compareLimits(a: Limit<Bytes>, b: Limit<Bytes>): number {
  if (a === b) return 0;
  if (a === 'max') return 1;
  if (b === 'max') return -1;
  return a - b;
}

/**
 * Returns a negative number, 0 or a positive number when `a` is a lower, the same or a higher rate than `b`, with any
 * periods. Not for limits that {@link sameCpu} finds equal: two absent limits give NaN.
 */
export const compareCpu = (a: CpuMax, b: CpuMax): number => rateOf(a) - rateOf(b);

const rateOf = ({ quota, period }: CpuMax): number => (quota === 'max' ? Infinity : quota / period);

/** Whether the kernel has `found` after `asked` is written: it rounds a limit down to whole pages. */
export const sameMemory = (found: Limit<Bytes>, asked: Limit<Bytes>): boolean => isSameLimit(asked, found, PAGE_SIZE);

/** Whether two CPU limits are equal. Without a quota, the period does not matter. */
export const sameCpu = (a: CpuMax, b: CpuMax): boolean =>
  a.quota === b.quota && (a.quota === 'max' || a.period === b.period);
