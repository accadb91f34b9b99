/**
 * CRI's words for a limit, and the kernel's. In CRI 0 keeps what is set and -1 removes it; here "keep" is undefined and
 * "no limit" is `max`. CRI numbers are int64: bigint or number, whatever the reader of the wire has.
 */
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../core/quantities/index.ts';
import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit, Microseconds } from '../core/quantities/index.ts';
import { DEFAULT_CPU_PERIOD, assertCpuMax } from './cpu.ts';

/** cgroup v1's bounds of cpu.shares. */
const MIN_SHARES = 2;
const MAX_SHARES = 262_144;
/** PAGE_COUNTER_MAX: from here on the kernel itself reads a size as `max`. */
export const UNLIMITED_MEMORY = 0x7fff_ffff_ffff_f000n;

/**
 * How cpu.shares become cpu.weight. `old`: linear; runc to 1.3.1, kubelet's pod cgroups through 1.36. `new`: keeps the
 * default at the default (1024 is 100); runc 1.3.2 and later, crun 1.23 and later.
 */
export type WeightFormula = 'old' | 'new';

/** cpu.weight of CPU shares, after clamping them to 2 to 262144 as cgroup v1 did. */
export function weightOfShares(shares: CpuShares, formula: WeightFormula): CpuWeight {
  const clamped = Math.min(Math.max(shares, MIN_SHARES), MAX_SHARES);
  return cpuWeight(Math.min(10_000, rounded(unroundedWeight(clamped, formula), formula)));
}

/** Whether the shares give the weight by at least one formula. */
export function weightMatchesShares(weight: CpuWeight, shares: CpuShares): boolean {
  return weightOfShares(shares, 'old') === weight || weightOfShares(shares, 'new') === weight;
}

/**
 * The formulas by which the shares give the weight: none, one, or both. For a pod's cgroup this tells which one the
 * node's kubelet goes by.
 */
export function formulasOf(weight: CpuWeight, shares: CpuShares): readonly WeightFormula[] {
  return (['old', 'new'] as const).filter((formula) => weightOfShares(shares, formula) === weight);
}

/**
 * The shares to report for a live weight. A weight is never inverted blindly, since many shares give one weight: as long
 * as the stored shares give it by either formula, they are what it came from. Else somebody wrote the weight itself, and
 * the shares that come nearest by the named formula are reported.
 */
export function sharesToReport(live: CpuWeight, stored: CpuShares | undefined, formula: WeightFormula): CpuShares {
  return stored !== undefined && weightMatchesShares(live, stored) ? stored : sharesOfWeight(live, formula);
}

/**
 * The shares that a weight comes from by a formula. Of several that give this weight, the one that the formula gives
 * before rounding: the fewest for `old`, which rounds down, the most for `new`, which rounds up. Of a weight that the
 * formula never gives, the nearest shares below.
 */
export function sharesOfWeight(weight: CpuWeight, formula: WeightFormula): CpuShares {
  let shares = inverted[formula][weight];
  if (shares === undefined) {
    shares = searchShares(weight, formula);
    inverted[formula][weight] = shares;
  }
  return shares;
}

/** What has been looked for: a weight is one of ten thousand, and is asked for again with each status. */
const inverted: Readonly<Record<WeightFormula, CpuShares[]>> = { old: [], new: [] };

function searchShares(weight: CpuWeight, formula: WeightFormula): CpuShares {
  const gives = (shares: number): number => weightOfShares(cpuShares(shares), formula);
  if (formula === 'new') return cpuShares(lastWhere((shares) => gives(shares) <= weight));
  const first = lastWhere((shares) => gives(shares) < weight) + 1;
  return cpuShares(weight <= 1 ? MIN_SHARES : Math.min(first, MAX_SHARES));
}

/** The largest number of shares for which a predicate that holds up to some point holds; at least the fewest. */
function lastWhere(holds: (shares: number) => boolean): number {
  let low = MIN_SHARES;
  let high = MAX_SHARES;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (holds(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

function unroundedWeight(shares: number, formula: WeightFormula): number {
  if (formula === 'old') return 1 + ((shares - 2) * 9999) / 262_142;
  if (shares <= MIN_SHARES) return 1;
  if (shares >= MAX_SHARES) return 10_000;
  const l = Math.log2(shares);
  return 10 ** ((l * l + 125 * l) / 612 - 7 / 34);
}

const rounded = (weight: number, formula: WeightFormula): number =>
  formula === 'old' ? Math.floor(weight) : Math.ceil(weight);

/** CRI's memory_limit_in_bytes: undefined keeps, `max` removes. Throws INVALID_VALUE for other negative numbers. */
export function memoryMaxOfCri(limit: bigint | number): Limit<Bytes> | undefined {
  const value = int64('memory_limit_in_bytes', limit);
  if (value === 0n) return undefined;
  if (value === -1n || value >= UNLIMITED_MEMORY) return 'max';
  return bytes(checked('memory_limit_in_bytes', value));
}

/**
 * CRI's memory_swap_limit_in_bytes counts memory and swap together, memory.swap.max swap alone (as runc converts it).
 * Undefined keeps. `memory` is the limit that holds after the update. Throws INVALID_VALUE when swap is under memory, or
 * given beside no memory limit.
 */
export function swapMaxOfCri(limit: bigint | number, memory: Limit<Bytes>): Limit<Bytes> | undefined {
  const value = int64('memory_swap_limit_in_bytes', limit);
  if (value === 0n) return undefined;
  if (value === -1n || value >= UNLIMITED_MEMORY) return 'max';
  const both = checked('memory_swap_limit_in_bytes', value);
  if (memory === 'max') throw invalid('memory_swap_limit_in_bytes', value, 'there is no memory limit to count it from');
  if (both < memory) throw invalid('memory_swap_limit_in_bytes', value, `less than the memory limit ${memory}`);
  return bytes(both - memory);
}

/**
 * cpu.max of CRI's cpu_quota and cpu_period (0 keeps each, quota -1 removes), over what is set now. Undefined when both
 * keep. Throws INVALID_VALUE for what the kernel would refuse.
 */
export function cpuMaxOfCri(
  quota: bigint | number,
  period: bigint | number,
  current: CpuMax | undefined,
): CpuMax | undefined {
  const asked = { quota: int64('cpu_quota', quota), period: int64('cpu_period', period) };
  if (asked.quota === 0n && asked.period === 0n) return undefined;
  const wanted: CpuMax = {
    quota: quotaOf(asked.quota) ?? current?.quota ?? 'max',
    period:
      asked.period === 0n ? (current?.period ?? DEFAULT_CPU_PERIOD) : microseconds(checked('cpu_period', asked.period)),
  };
  assertCpuMax(wanted);
  return wanted;
}

function quotaOf(value: bigint): Limit<Microseconds> | undefined {
  if (value === 0n) return undefined;
  return value === -1n ? 'max' : microseconds(checked('cpu_quota', value));
}

/** CRI's cpu_shares: undefined keeps. Throws INVALID_VALUE for a negative number. */
export function cpuSharesOfCri(shares: bigint | number): CpuShares | undefined {
  const value = int64('cpu_shares', shares);
  if (value === 0n) return undefined;
  const clamped = value > BigInt(MAX_SHARES) ? BigInt(MAX_SHARES) : value;
  return cpuShares(Math.max(MIN_SHARES, checked('cpu_shares', clamped)));
}

/** memory_limit_in_bytes as CRI reports it: -1 is no limit. */
export const criOfMemoryMax = (limit: Limit<Bytes>): number => (limit === 'max' ? -1 : limit);

/** memory_swap_limit_in_bytes as CRI reports it: memory and swap together, -1 is no limit. */
export function criOfSwapMax(swap: Limit<Bytes>, memory: Limit<Bytes>): number {
  return swap === 'max' || memory === 'max' ? -1 : memory + swap;
}

/** cpu_quota and cpu_period as CRI reports them: quota -1 is no limit. */
export function criOfCpuMax({ quota, period }: CpuMax): { readonly quota: number; readonly period: number } {
  return { quota: quota === 'max' ? -1 : quota, period };
}

function int64(field: string, value: bigint | number): bigint {
  if (typeof value === 'bigint') return value;
  if (!Number.isSafeInteger(value)) throw invalid(field, value, 'not a whole number that can be told exactly');
  return BigInt(value);
}

function checked(field: string, value: bigint): number {
  if (value < 0n) throw invalid(field, value, 'of negative numbers only -1 has a meaning');
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid(field, value, 'more than any node has');
  return Number(value);
}

function invalid(field: string, value: bigint | number, why: string): ShimError {
  const asked = String(value);
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${field}: ${asked}: ${why}`, { asked });
}
