/**
 * The formats of the settings that CRI's `unified`, cpusets and hugepage limits write to a cgroup's files: whether a file has a value,
 * and what has to be written to get the value from before back. Sources: kernel Documentation/admin-guide/cgroup-v2.rst. Pure.
 */
import type { Bytes } from '../../core/quantities/index.ts';
import { isSameList } from './bitmap-list.ts';
import { sizeInBytes } from './unified.ts';

/** Files with a size in bytes or `max`. */
const SIZES = /^memory\.(?:max|high|low|min|swap\.max|swap\.high|zswap\.max)$/;
const HUGE_PAGES = /^hugetlb\.(\d+)([KMGTP]?)B\.(?:rsvd\.)?max$/;
/** Files with one number or word. */
const WORDS = /^(?:memory\.oom\.group|memory\.zswap\.writeback|pids\.max|cpu\.(?:weight|idle|max\.burst))$/;
const LISTS = /^cpuset\.(?:cpus|mems)$/;
/** Files with one line for each device, region or resource. A write sets one line. The value removes what the line sets. */
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

/** What the formats depend on. */
export interface Machine {
  readonly pageSize: Bytes;
  /** Returns the number of the last CPU or memory node that the machine may have. Undefined if nothing tells. */
  readonly lastPossible: (kind: 'cpu' | 'node') => number | undefined;
}

/**
 * Whether a file's content `found` results from writing `asked`: the kernel rounds sizes to pages, sorts lists and prints one line per
 * device. Undefined where the format of the file is not known and the texts differ.
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

/** Returns what restores a file's content `before` once `asked` is written to it. */
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

/** The kernel's page counters end below 2^63. */
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

/** The device or region of a line. `io.weight` takes a number alone for the default. */
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
  // A line without any limit is not printed.
  if (line === undefined) return values.every((value) => (NO_VALUE[key] ?? '').split(' ').includes(value));
  return values.every((value) => line.includes(value));
}
