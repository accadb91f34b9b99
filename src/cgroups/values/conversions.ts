/**
 * Converts limits between CRI and the kernel. In CRI, 0 keeps the current limit and -1 removes it; here undefined keeps
 * it and `max` is no limit. CRI numbers are int64, given as bigint or number.
 */

import { Reason, ShimError } from '../../core/errors.ts';
import { Code } from '../../core/grpc.ts';
import {
  type Bytes,
  bytes,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  cpuShares,
  cpuWeight,
  type Limit,
  type Microseconds,
  microseconds,
} from '../../core/quantities/numbers.ts';
import { assertCpuMax, DEFAULT_CPU_PERIOD } from './controller-files.ts';

/** Bounds of cpu.shares in cgroup v1 (kernel/sched/sched.h, MIN_SHARES and MAX_SHARES). */
export const MIN_CPU_SHARES = 2;
export const MAX_CPU_SHARES = 262_144;
/** PAGE_COUNTER_MAX (kernel include/linux/page_counter.h): the kernel treats this and larger sizes as `max`. */
export const UNLIMITED_MEMORY = 0x7fff_ffff_ffff_f000n;

/**
 * The formula that converts cpu.shares to cpu.weight. `old` is linear: runc up to 1.3.1, and kubelet's pod cgroups at
 * least up to 1.37. `new` maps the default to the default (1024 shares to weight 100): runc 1.3.2 and crun 1.23 and
 * later (opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value).
 */
export type WeightFormula = 'old' | 'new';

/** Returns the cpu.weight for CPU shares. Clamps the shares to 2 to 262144, like cgroup v1. */
export function weightOfShares(shares: CpuShares, formula: WeightFormula): CpuWeight {
  const clamped = Math.min(Math.max(shares, MIN_CPU_SHARES), MAX_CPU_SHARES);
  return cpuWeight(Math.min(10_000, rounded(unroundedWeight(clamped, formula), formula)));
}

/** Whether either formula maps the shares to the weight (KEP-1287: shares determine the status's CPU request). */
export function weightMatchesShares(weight: CpuWeight, shares: CpuShares): boolean {
  return weightOfShares(shares, 'old') === weight || weightOfShares(shares, 'new') === weight;
}

/**
 * Returns the formulas that map the shares to the weight: none, one or both. For a pod's cgroup, this shows which
 * formula the node's kubelet uses.
 */
export function formulasOf(weight: CpuWeight, shares: CpuShares): readonly WeightFormula[] {
  return (['old', 'new'] as const).filter((formula) => weightOfShares(shares, formula) === weight);
}

/**
 * Returns the shares to report for the current weight. Many shares map to the same weight, so the inverse is ambiguous:
 * if either formula maps the stored shares to the weight, returns the stored shares. Otherwise another process has set
 * the weight, and the result is the inverse by the given formula.
 */
export function sharesToReport(live: CpuWeight, stored: CpuShares | undefined, formula: WeightFormula): CpuShares {
  return stored !== undefined && weightMatchesShares(live, stored) ? stored : sharesOfWeight(live, formula);
}

/**
 * Returns the shares that a formula maps to a weight. If several do, returns the one closest to the weight before
 * rounding: the fewest for `old`, which rounds down, and the most for `new`, which rounds up. If none do, returns the
 * nearest shares below.
 */
export function sharesOfWeight(weight: CpuWeight, formula: WeightFormula): CpuShares {
  let shares = inverted[formula][weight];
  if (shares === undefined) {
    shares = searchShares(weight, formula);
    inverted[formula][weight] = shares;
  }
  return shares;
}

/** Cache of inverses. There are only 10000 weights, and each status needs one. */
const inverted: Readonly<Record<WeightFormula, CpuShares[]>> = { old: [], new: [] };

function searchShares(weight: CpuWeight, formula: WeightFormula): CpuShares {
  const weightFor = (shares: number): number => weightOfShares(cpuShares(shares), formula);
  if (formula === 'new') return cpuShares(lastWhere((shares) => weightFor(shares) <= weight));
  const first = lastWhere((shares) => weightFor(shares) < weight) + 1;
  return cpuShares(weight <= 1 ? MIN_CPU_SHARES : Math.min(first, MAX_CPU_SHARES));
}

/** Binary search for the largest number of shares for which a monotonic predicate holds; at least MIN_CPU_SHARES. */
function lastWhere(holds: (shares: number) => boolean): number {
  let low = MIN_CPU_SHARES;
  let high = MAX_CPU_SHARES;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (holds(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Returns the weight before rounding. Sources: runc 1.3.1 for `old`, opencontainers/cgroups for `new` (quadratic). */
function unroundedWeight(shares: number, formula: WeightFormula): number {
  if (formula === 'old') return 1 + ((shares - 2) * 9999) / 262_142;
  if (shares <= MIN_CPU_SHARES) return 1;
  if (shares >= MAX_CPU_SHARES) return 10_000;
  const l = Math.log2(shares);
  return 10 ** ((l * l + 125 * l) / 612 - 7 / 34);
}

const rounded = (weight: number, formula: WeightFormula): number =>
  formula === 'old' ? Math.floor(weight) : Math.ceil(weight);

/** Reads CRI's memory_limit_in_bytes (KEP-1287, CRI changes). Throws INVALID_VALUE if negative, except -1. */
export function memoryMaxOfCri(limit: bigint | number): Limit<Bytes> | undefined {
  const value = int64('memory_limit_in_bytes', limit);
  if (value === 0n) return undefined;
  if (value === -1n || value >= UNLIMITED_MEMORY) return 'max';
  return bytes(checked('memory_limit_in_bytes', value, ONLY_MINUS_ONE));
}

/** CRI's value for no hugepage limit, as runtimes and kubelet set it: the largest 64-bit number, the kernel's `max`. */
export const NO_HUGE_PAGE_LIMIT = 2n ** 64n - 1n;

/**
 * Reads CRI's memory_swap_limit_in_bytes, which is the sum of memory and swap; memory.swap.max is swap only (runc
 * converts it the same way). `memory` is the limit after the update. Throws INVALID_VALUE if the sum is below the
 * memory limit, or if there is no memory limit.
 */
export function swapMaxOfCri(limit: bigint | number, memory: Limit<Bytes>): Limit<Bytes> | undefined {
  const value = int64('memory_swap_limit_in_bytes', limit);
  if (value === 0n) return undefined;
  if (value === -1n || value >= UNLIMITED_MEMORY) return 'max';
  const both = checked('memory_swap_limit_in_bytes', value, ONLY_MINUS_ONE);
  if (memory === 'max') throw invalid('memory_swap_limit_in_bytes', value, 'requires a memory limit');
  if (both < memory) throw invalid('memory_swap_limit_in_bytes', value, `below the memory limit ${memory}`);
  return bytes(both - memory);
}

/**
 * Reads CRI's cpu_quota and cpu_period as a cpu.max. 0 keeps the value of `current`, quota -1 removes the limit.
 * Returns undefined if both are 0. Throws INVALID_VALUE for values that the kernel rejects.
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
      asked.period === 0n
        ? (current?.period ?? DEFAULT_CPU_PERIOD)
        : microseconds(checked('cpu_period', asked.period, NOT_NEGATIVE)),
  };
  assertCpuMax(wanted);
  return wanted;
}

function quotaOf(value: bigint): Limit<Microseconds> | undefined {
  if (value === 0n) return undefined;
  return value === -1n ? 'max' : microseconds(checked('cpu_quota', value, ONLY_MINUS_ONE));
}

/** Reads CRI's cpu_shares. Throws INVALID_VALUE for negative numbers. */
export function cpuSharesOfCri(shares: bigint | number): CpuShares | undefined {
  const value = int64('cpu_shares', shares);
  if (value === 0n) return undefined;
  const clamped = value > BigInt(MAX_CPU_SHARES) ? BigInt(MAX_CPU_SHARES) : value;
  return cpuShares(Math.max(MIN_CPU_SHARES, checked('cpu_shares', clamped, NOT_NEGATIVE)));
}

/** Returns a memory limit as CRI's memory_limit_in_bytes: -1 is no limit. */
export const criOfMemoryMax = (limit: Limit<Bytes>): number => (limit === 'max' ? -1 : limit);

/** Returns a swap limit as CRI's memory_swap_limit_in_bytes: the sum of memory and swap, -1 is no limit. */
export function criOfSwapMax(swap: Limit<Bytes>, memory: Limit<Bytes>): number {
  return swap === 'max' || memory === 'max' ? -1 : memory + swap;
}

/** Returns a CPU limit as CRI's cpu_quota and cpu_period: quota -1 is no limit. */
export function criOfCpuMax({ quota, period }: CpuMax): { readonly quota: number; readonly period: number } {
  return { quota: quota === 'max' ? -1 : quota, period };
}

function int64(field: string, value: bigint | number): bigint {
  if (typeof value === 'bigint') return value;
  if (!Number.isSafeInteger(value)) throw invalid(field, value, 'must be a whole number below 2^53');
  return BigInt(value);
}

const ONLY_MINUS_ONE = 'the only allowed negative number is -1';
const NOT_NEGATIVE = 'must not be negative';

/** @param negative why a negative number is invalid, except for the -1 that the caller has read as no limit */
function checked(field: string, value: bigint, negative: string): number {
  if (value < 0n) throw invalid(field, value, negative);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid(field, value, 'must be below 2^53');
  return Number(value);
}

function invalid(field: string, value: bigint | number, why: string): ShimError {
  const asked = String(value);
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${field}: ${asked}: ${why}`, { asked });
}
