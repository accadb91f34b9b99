/**
 * Branded numbers, so that the compiler reports a mix-up of different quantities. All are safe integers, checked at
 * creation, so that later arithmetic is exact.
 */

declare const brand: unique symbol;
type Branded<Name extends string> = number & { readonly [brand]: Name };

/** A size or an amount of memory, in bytes. */
export type Bytes = Branded<'bytes'>;
/** A span of CPU time, in microseconds: the unit of cpu.max. */
export type Microseconds = Branded<'microseconds'>;
/** cgroup v1 CPU shares, 2 to 262144: the unit of CRI's cpu_shares. */
export type CpuShares = Branded<'shares'>;
/** cgroup v2 cpu.weight, 1 to 10000. */
export type CpuWeight = Branded<'weight'>;

/** A limit, or `max` for no limit, as in the kernel's files. */
export type Limit<Amount extends number> = Amount | 'max';

/** cpu.max: `quota` of CPU time in each `period`. */
export interface CpuMax {
  readonly quota: Limit<Microseconds>;
  readonly period: Microseconds;
}

/** Returns a number as bytes. Throws RangeError if it is negative or not a safe integer. */
export const bytes = (value: number): Bytes => natural(value, 'bytes') as Bytes;
/** Returns a number as microseconds. Throws RangeError if it is negative or not a safe integer. */
export const microseconds = (value: number): Microseconds => natural(value, 'microseconds') as Microseconds;
/** Returns a number as CPU shares. Throws RangeError if it is negative or not a safe integer. */
export const cpuShares = (value: number): CpuShares => natural(value, 'shares') as CpuShares;
/**
 * Returns the CPU shares that a runtime reports. Undefined for 0, which means none, and for invalid values: a wrong
 * report of a runtime must not fail a call.
 */
export function reportedShares(value: number | bigint): CpuShares | undefined {
  const shares = Number(value);
  return Number.isSafeInteger(shares) && shares > 0 ? cpuShares(shares) : undefined;
}
/** Returns a number as a cpu.weight. Throws RangeError if it is negative or not a safe integer. */
export const cpuWeight = (value: number): CpuWeight => natural(value, 'weight') as CpuWeight;

function natural(value: number, name: string): number {
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`not a number of ${name}: ${value}`);
  return value;
}
