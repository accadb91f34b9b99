/** CPU and memory as Kubernetes writes them, and as the kernel takes them. Pure. */
import {
  DEFAULT_CPU_PERIOD,
  MAX_CPU_QUOTA,
  MAX_CPU_SHARES,
  MIN_CPU_QUOTA,
  MIN_CPU_SHARES,
  MIN_MEMORY_LIMIT,
} from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import {
  type Bytes,
  type CpuMax,
  type CpuShares,
  type Limit,
  cpuShares,
  microseconds,
  parseMilli,
  parseQuantity,
} from '../../core/quantities/index.ts';

const UNITS = [
  ['Gi', 2 ** 30],
  ['Mi', 2 ** 20],
  ['Ki', 2 ** 10],
] as const;

/** Thousandths of a CPU. */
export type MilliCpu = number;

/** A limit as it is asked: undefined keeps, `max` removes. Throws INVALID_VALUE, naming `field` and the text. */
export function readCpuLimit(text: string, field: string): Limit<MilliCpu> | undefined {
  if (removes(text)) return 'max';
  const milli = readCpuRequest(text, field);
  if (milli !== undefined && quotaOf(milli) > MAX_CPU_QUOTA) throw invalid(field, text, 'more than the kernel takes');
  return milli;
}

/** The same for a request, which cannot be removed. */
export function readCpuRequest(text: string, field: string): MilliCpu | undefined {
  return number(text, field, parseMilli, 'want CPUs, as in "500m" or "1.5"');
}

/** The same for a limit of memory. */
export function readMemoryLimit(text: string, field: string): Limit<Bytes> | undefined {
  if (removes(text)) return 'max';
  const limit = readMemoryRequest(text, field);
  if (limit !== undefined && limit < MIN_MEMORY_LIMIT) {
    throw invalid(field, text, `less than a page of memory, ${MIN_MEMORY_LIMIT} bytes`);
  }
  return limit;
}

/** The same for a request of memory. */
export function readMemoryRequest(text: string, field: string): Bytes | undefined {
  return number(text, field, parseQuantity, 'want an amount of memory, as in "256Mi"');
}

/** cpu.max of a limit: kubelet's formula (MilliCPUToQuota), with the kernel's least quota as its lower end. */
export function cpuMaxOf(limit: Limit<MilliCpu>): CpuMax {
  if (limit === 'max') return { quota: 'max', period: DEFAULT_CPU_PERIOD };
  return { quota: microseconds(Math.max(MIN_CPU_QUOTA, quotaOf(limit))), period: DEFAULT_CPU_PERIOD };
}

/** Shares of a request: kubelet's formula (MilliCPUToShares), within cgroup v1's bounds. */
export function sharesOf(request: MilliCpu): CpuShares {
  return cpuShares(Math.min(MAX_CPU_SHARES, Math.max(MIN_CPU_SHARES, Math.floor((request * 1024) / 1000))));
}

/** `500m`, `2`, `max`; to the millionth of a CPU, rounded up, where thousandths do not tell. */
export function formatCpuMax({ quota, period }: CpuMax): string {
  if (quota === 'max') return 'max';
  const milli = (quota * 1000) / period;
  return Number.isInteger(milli) ? formatMilli(milli) : `${Math.ceil((quota * 1_000_000) / period)}u`;
}

/** The request of CPU that these shares come from. */
export const formatShares = (shares: CpuShares): string => formatMilli(milliOfShares(shares));

export const milliOfShares = (shares: CpuShares): MilliCpu => Math.ceil((shares * 1000) / 1024);

/** `256Mi`, or bytes where no unit tells exactly; `max`. */
export function formatMemory(limit: Limit<Bytes>): string {
  if (limit === 'max') return 'max';
  const [unit, size] = UNITS.find(([, bytes]) => limit > 0 && limit % bytes === 0) ?? ['', 1];
  return `${limit / size}${unit}`;
}

/** As {@link parseMilli} reads it. */
export const formatMilli = (milli: MilliCpu): string => (milli % 1000 === 0 ? `${milli / 1000}` : `${milli}m`);

const quotaOf = (milli: MilliCpu): number => (milli * DEFAULT_CPU_PERIOD) / 1000;
const removes = (text: string): boolean => text === '-1' || text === 'max';

function number<Value extends number>(
  text: string,
  field: string,
  parse: (text: string) => Value | undefined,
  want: string,
): Value | undefined {
  if (text === '') return undefined;
  const value = parse(text);
  if (value === undefined) throw invalid(field, text, want);
  return value === 0 ? undefined : value;
}

/** INVALID_ARGUMENT with the path of the field, and the value cut to what a person reads. */
export function invalid(field: string, value: string, why: string): ShimError {
  const asked = value.length > 64 ? `${value.slice(0, 64)}...` : value;
  const message = `${field}: ${JSON.stringify(asked)}: ${why}`;
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { field, asked });
}
