/**
 * The formats of the settings that CRI's `unified`, cpusets and hugepage limits write to a cgroup's files. Checks
 * whether a file has a value, and computes the text that restores a previous value. Source: kernel
 * Documentation/admin-guide/cgroup-v2.rst. Pure.
 */
import type { Bytes } from '../../core/quantities/numbers.ts';
import { sizeInBytes } from './unified.ts';

/** Files with a size in bytes or `max`. */
const SIZES = /^memory\.(?:max|high|low|min|swap\.max|swap\.high|zswap\.max)$/;
const HUGE_PAGES = /^hugetlb\.(\d+)([KMGTP]?)B\.(?:rsvd\.)?max$/;
/** Files with one number or word. */
const WORDS = /^(?:memory\.oom\.group|memory\.zswap\.writeback|pids\.max|cpu\.(?:weight|idle|max\.burst))$/;
const LISTS = /^cpuset\.(?:cpus|mems)$/;
/** Files with one line per device, region or resource, with the value that resets a line. A write sets one line. */
const NO_VALUE: Readonly<Record<string, string>> = {
  'io.max': 'rbps=max wbps=max riops=max wiops=max',
  'io.latency': 'target=0',
  'io.weight': 'default',
  'io.bfq.weight': 'default',
  'rdma.max': 'hca_handle=max hca_object=max',
  'misc.max': 'max',
  'dmem.max': 'max',
  'dmem.low': '0',
  'dmem.min': '0',
};

/** The properties of the machine that the formats depend on. */
export interface Machine {
  readonly pageSize: Bytes;
  /** Returns the number of the last CPU or memory node that the machine may have. Undefined if unknown. */
  readonly lastPossible: (kind: 'cpu' | 'node') => number | undefined;
}

/**
 * Whether a file's content `found` results from writing `asked`: the kernel rounds sizes to pages, sorts lists and
 * prints one line per device. Undefined if the texts differ and the format of the file is not known.
 */
export function holdsSetting(key: string, asked: string, found: string, machine: Machine): boolean | undefined {
  const [wanted, has] = [asked.trim(), found.trim()];
  if (wanted === has) return true;
  const unit = HUGE_PAGES.test(key) ? hugePageSize(key) : SIZES.test(key) ? BigInt(machine.pageSize) : undefined;
  if (unit !== undefined) return isSameSize(wanted, has, unit);
  if (LISTS.test(key)) return isSameList(wanted, has, machine.lastPossible(key === 'cpuset.cpus' ? 'cpu' : 'node'));
  if (key === 'cpu.max') return holdsCpuMax(wanted, has);
  if (key in NO_VALUE) return hasLine(key, wanted, has);
  return WORDS.test(key) ? false : undefined;
}

/** Returns the text that restores a file's previous content `before` after `asked` was written. */
export function restoringSetting(key: string, asked: string, before: string): string {
  const none = NO_VALUE[key];
  if (none === undefined) return before.trim();
  const name = nameOf(asked.trim());
  return lineOf(before, name) ?? `${name} ${none}`;
}

function hugePageSize(key: string): bigint {
  const [, count = '1', unit = ''] = HUGE_PAGES.exec(key) ?? [];
  return sizeInBytes(`${count}${unit}`) ?? 1n;
}

/** Sizes from here on are unlimited: the kernel's page counters end below 2^63. */
const UNLIMITED = 0x7fff_ffff_ffff_f000n;

function isSameSize(asked: string, found: string, unit: bigint): boolean | undefined {
  const [a, b] = [sizeOf(asked), sizeOf(found)];
  return a === undefined || b === undefined
    ? undefined
    : a === b || (a !== 'max' && b !== 'max' && a - (a % unit) === b);
}

function sizeOf(text: string): bigint | 'max' | undefined {
  const size = text === 'max' || /^\d{20,}$/.test(text) ? UNLIMITED : sizeInBytes(text);
  return size !== undefined && size >= UNLIMITED ? 'max' : size;
}

/** Whether cpu.max holds what was written: a write without a period keeps the period. */
function holdsCpuMax(asked: string, found: string): boolean {
  const [quota, period] = asked.split(/\s+/);
  const [foundQuota, foundPeriod] = found.split(/\s+/);
  return quota === foundQuota && (period === undefined || quota === 'max' || period === foundPeriod);
}

/** Returns the device or region of a line. In `io.weight`, a number alone is the default. */
const nameOf = (line: string): string => (/^\d+$/.test(line) ? 'default' : (line.split(/\s+/)[0] ?? ''));

const lineOf = (text: string, name: string): string | undefined =>
  text
    .split('\n')
    .map((line) => line.trim())
    .find((line) => line.startsWith(`${name} `));

function hasLine(key: string, asked: string, found: string): boolean {
  const name = nameOf(asked);
  const values = (/^\d+$/.test(asked) ? asked : asked.slice(name.length)).trim().split(/\s+/);
  const line = lineOf(found, name)?.split(/\s+/).slice(1);
  // The kernel does not print a line without any limit.
  if (line === undefined) return values.every((value) => (NO_VALUE[key] ?? '').split(' ').includes(value));
  return values.every((value) => line.includes(value));
}

/**
 * Lists of CPUs and memory nodes, as the kernel reads them (lib/bitmap-str.c, bitmap_parselist): `0-3,8`, `all`, `N`
 * for the last one, and `0-10:2/4` for the first 2 of each 4. The kernel prints numbers and ranges only. Pure.
 */

/** The maximum number of CPUs that a kernel supports (CONFIG_NR_CPUS). */
const MOST_NUMBERS = 8192;

/** One byte for each number: 1 if it is in the list. */
type Numbers = Uint8Array;

/**
 * Whether the kernel prints `found` after `asked` is written. Undefined if a list is not valid, or if it refers to the
 * last number and `lastPossible` is unknown.
 *
 * @param lastPossible the last CPU or node that this machine may have. `N` means this number or, in some kernels, the
 *   last number that the kernel is built for (NR_CPUS, MAX_NUMNODES)
 */
export function isSameList(asked: string, found: string, lastPossible: number | undefined): boolean | undefined {
  const has = numbersIn(found);
  const { known = [], relative = [] } = Object.groupBy(partsOf(asked), (part) =>
    LAST.test(part) ? 'relative' : 'known',
  );
  const base = numbersOf(known, -1);
  if (has === undefined || base === undefined || (relative.length > 0 && lastPossible === undefined)) return undefined;
  const lasts = relative.length > 0 ? lastNumbers(lastPossible ?? 0) : [-1];
  const wanted = lasts
    .map((last) => numbersOf(relative, last, base))
    .filter((numbers) => numbers?.includes(1) === true);
  return wanted.length === 0 ? undefined : wanted.some((numbers) => numbers && Buffer.compare(numbers, has) === 0);
}

/** A part of a list that refers to the last number. */
const LAST = /n|all/i;

const partsOf = (list: string): readonly string[] => list.split(/[\s,]+/).filter(Boolean);

/** Returns the numbers that `N` can mean. Kernels are built for a power of two. */
const lastNumbers = (lastPossible: number): readonly number[] => {
  const built = Array.from({ length: Math.log2(MOST_NUMBERS) + 1 }, (_, power) => 2 ** power - 1);
  return [lastPossible, ...built.filter((last) => last > lastPossible)];
};

const REGION = /^(?:(all)|(\d{1,5}|N)(?:-(\d{1,5}|N))?)(?::(\d{1,5}|N)\/(\d{1,5}|N))?$/i;

/** Parses a list without references to the last number. Undefined for any other list and for an empty list. */
function numbersIn(list: string): Numbers | undefined {
  const numbers = numbersOf(partsOf(list), -1);
  return numbers?.includes(1) === true ? numbers : undefined;
}

/** Adds parts of a list to a copy of `base`. Undefined if the kernel rejects one of them. */
function numbersOf(
  parts: readonly string[],
  last: number,
  base: Numbers = new Uint8Array(MOST_NUMBERS),
): Numbers | undefined {
  const numbers = base.slice();
  return parts.every((part) => addRegion(numbers, part, last)) ? numbers : undefined;
}

/** Adds a region. Returns whether it is valid (bitmap_parse_region, bitmap_check_region, bitmap_set_region). */
function addRegion(numbers: Numbers, region: string, last: number): boolean {
  const [, all, first, end, used, group] = REGION.exec(region) ?? [];
  const number = (text: string): number => (text === 'N' ? last : Number(text));
  if (all === undefined && first === undefined) return false;
  // A pattern requires a range.
  if (used !== undefined && all === undefined && end === undefined) return false;
  const from = first === undefined ? 0 : number(first);
  const to = all === undefined ? number(end ?? first ?? '') : last;
  const [length, step] = used === undefined ? [to + 1, to + 1] : [number(used), number(group ?? '')];
  const isValid = from >= 0 && from <= to && to < MOST_NUMBERS && step > 0 && length <= step;
  if (!isValid) return false;
  for (let start = from; start <= to; start += step) numbers.fill(1, start, Math.min(start + length, to + 1));
  return true;
}

/** Returns the last number of a list that the kernel prints. Undefined for any other text. */
export function lastNumber(list: string): number | undefined {
  return numbersIn(list)?.lastIndexOf(1);
}

/**
 * Returns the numbers of a list as a bit mask; 0 for an empty list. Undefined for an invalid list, and for a list that
 * refers to the last number.
 */
export function bitsOf(list: string): bigint | undefined {
  if (list.trim() === '') return 0n;
  const numbers = numbersIn(list);
  return numbers && BigInt(`0b${numbers.toReversed().join('')}`);
}
