/**
 * Numbers that must not be confused with each other. All are checked safe integers: what does not fit is refused where
 * it comes in, so that no arithmetic further in can lose a digit.
 */

declare const unit: unique symbol;
type Branded<Name extends string> = number & { readonly [unit]: Name };

/** A size or an amount of memory, in bytes. */
export type Bytes = Branded<'bytes'>;
/** A span of CPU time, in microseconds: the unit of cpu.max. */
export type Microseconds = Branded<'microseconds'>;
/** cgroup v1 CPU shares, 2 to 262144: the unit of CRI's cpu_shares. */
export type CpuShares = Branded<'shares'>;
/** cgroup v2 cpu.weight, 1 to 10000. */
export type CpuWeight = Branded<'weight'>;

/** A limit, or the absence of one: what the kernel writes as `max`. */
export type Limit<Unit extends number> = Unit | 'max';

/** cpu.max: `quota` of CPU time in each `period`. */
export interface CpuMax {
  readonly quota: Limit<Microseconds>;
  readonly period: Microseconds;
}

/** Takes a checked integer as a size in bytes. Throws RangeError when it is negative or not a safe integer. */
export const bytes = (value: number): Bytes => natural(value, 'bytes') as Bytes;
/** Takes a checked integer as microseconds. Throws RangeError when it is negative or not a safe integer. */
export const microseconds = (value: number): Microseconds => natural(value, 'microseconds') as Microseconds;
/** Takes a checked integer as CPU shares. Throws RangeError when it is negative or not a safe integer. */
export const cpuShares = (value: number): CpuShares => natural(value, 'shares') as CpuShares;
/** Takes a checked integer as a cpu.weight. Throws RangeError when it is negative or not a safe integer. */
export const cpuWeight = (value: number): CpuWeight => natural(value, 'weight') as CpuWeight;

function natural(value: number, name: string): number {
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`not a number of ${name}: ${value}`);
  return value;
}
