/** Parses and formats the files of the CPU and memory controllers. */

import { Reason, ShimError } from '../../core/errors.ts';
import { Code } from '../../core/grpc.ts';
import {
  type Bytes,
  bytes,
  type CpuMax,
  type CpuWeight,
  cpuWeight,
  type Limit,
  microseconds,
} from '../../core/quantities/numbers.ts';
import { PAGE_SIZE } from '../../core/quantities/page-size.ts';

/** Kernel limits: quota at least 1 ms, period 1 ms to 1 s (kernel/sched/core.c, tg_set_cfs_bandwidth). */
export const MIN_CPU_QUOTA = microseconds(1000);
/** The file with the CPU time that may be saved up from earlier periods, in microseconds (kernel cgroup-v2). */
export const CPU_BURST = 'cpu.max.burst';
/** 44 bits of microseconds (kernel/sched/sched.h, MAX_BW). */
export const MAX_CPU_QUOTA = microseconds(2 ** 44 - 1);
export const MIN_CPU_PERIOD = microseconds(1000);
export const MAX_CPU_PERIOD = microseconds(1_000_000);
export const DEFAULT_CPU_PERIOD = microseconds(100_000);

export const MIN_CPU_WEIGHT = cpuWeight(1);
export const MAX_CPU_WEIGHT = cpuWeight(10_000);

/** Reads cpu.max, `<quota or max> <period>`. Throws CGROUP_UNAVAILABLE for other content. */
export function parseCpuMax(text: string): CpuMax {
  const [, quota, period] = /^(max|\d{1,15}) (\d{1,15})$/.exec(text) ?? [];
  if (quota === undefined || period === undefined) throw unexpectedContent('cpu.max', text);
  return { quota: quota === 'max' ? 'max' : microseconds(Number(quota)), period: microseconds(Number(period)) };
}

/** Formats quota and period, so that one write sets both. */
export const formatCpuMax = ({ quota, period }: CpuMax): string => `${quota} ${period}`;

/** Throws INVALID_VALUE for values that the kernel rejects. */
export function assertCpuMax({ quota, period }: CpuMax): void {
  if (period < MIN_CPU_PERIOD || period > MAX_CPU_PERIOD) {
    throw invalid('cpu.max', String(period), `the period must be ${MIN_CPU_PERIOD} to ${MAX_CPU_PERIOD} microseconds`);
  }
  if (quota !== 'max' && quota < MIN_CPU_QUOTA) {
    throw invalid('cpu.max', String(quota), `the quota must be at least ${MIN_CPU_QUOTA} microseconds`);
  }
  if (quota !== 'max' && quota > MAX_CPU_QUOTA) {
    throw invalid('cpu.max', String(quota), `the quota must be at most ${MAX_CPU_QUOTA} microseconds`);
  }
}

/** Whether quota and period are equal, also if both quotas are `max`: the content of the file is the same. */
export const isSameCpuMax = (a: CpuMax, b: CpuMax): boolean => a.quota === b.quota && a.period === b.period;

/**
 * Reads cpu.weight: 1 to 10000 (kernel cgroup-v2), or on some kernels 0 if the cgroup is idle (cpu.idle = 1). Throws
 * CGROUP_UNAVAILABLE for other content.
 */
export function parseCpuWeight(text: string): CpuWeight {
  const weight = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(weight <= MAX_CPU_WEIGHT)) throw unexpectedContent('cpu.weight', text);
  return cpuWeight(weight);
}

/** Throws INVALID_VALUE for values that the kernel rejects. */
export function assertCpuWeight(weight: CpuWeight): void {
  if (weight >= MIN_CPU_WEIGHT && weight <= MAX_CPU_WEIGHT) return;
  throw invalid('cpu.weight', String(weight), `the weight must be ${MIN_CPU_WEIGHT} to ${MAX_CPU_WEIGHT}`);
}

function invalid(file: string, asked: string, why: string): ShimError {
  return new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, `${file}: ${asked}: ${why}`, { file, asked });
}

/** Reads and formats the files of the memory controller. Sizes are in bytes. */

/**
 * The minimum limit in bytes, a page. The kernel rounds less down to 0, which kills every process
 * (mm/page_counter.c, page_counter_memparse).
 */
export const MIN_MEMORY_LIMIT = PAGE_SIZE;

/** The files of the memory controller that contain a size or `max`. */
export type MemoryLimitFile = 'memory.max' | 'memory.high' | 'memory.low' | 'memory.min' | 'memory.swap.max';

/** Memory usage with descendants, in bytes, from memory.stat (kernel Documentation/admin-guide/cgroup-v2.rst). */
export interface MemoryStat {
  /** Mapped anonymous memory, locked or not. */
  readonly anon: Bytes;
  /** tmpfs files, shared memory segments and shared anonymous mappings. Part of `file`. */
  readonly shmem: Bytes;
  /** Pages on the unevictable list: locked pages (anon, shmem or file) and all pages of a tmpfs mounted with noswap. */
  readonly unevictable: Bytes;
  /** Page cache, including tmpfs. */
  readonly file: Bytes;
  readonly inactiveFile: Bytes;
  /** Pages on the anonymous LRU lists: anon and shmem that only swap can reclaim. */
  readonly activeAnon: Bytes;
  readonly inactiveAnon: Bytes;
  /** Kernel memory charged to the cgroup that does not shrink under pressure, compressed pages included. */
  readonly kernelUnreclaimable: Bytes;
  /** Memory that the compressed pages in zswap take. Part of `kernelUnreclaimable`. */
  readonly zswap: Bytes;
  /** The size that the pages in zswap had before. Part of memory.swap.current. */
  readonly zswapped: Bytes;
}

/**
 * Reads a file that contains a size or `max`. Reads a size above 2^53 as `max`: no machine has as much, and one such
 * value must not make the whole pod unreadable. Throws CGROUP_UNAVAILABLE for other content.
 */
export function parseLimit(text: string, file: string): Limit<Bytes> {
  return text === 'max' || (/^\d{16,20}$/.test(text) && Number(text) > Number.MAX_SAFE_INTEGER)
    ? 'max'
    : parseSize(text, file);
}

/** Reads a file that contains a number of bytes. Throws CGROUP_UNAVAILABLE for other content. */
export function parseSize(text: string, file: string): Bytes {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw unexpectedContent(file, text);
  return bytes(value);
}

/** Formats a memory limit for the kernel's files: bytes or `max`. */
export const formatLimit = (limit: Limit<Bytes>): string => String(limit);

/** Returns a size as a kernel limit: rounded down to whole pages (mm/page_counter.c, page_counter_memparse). */
export const wholePages = (size: number, pageSize: number): number => Math.floor(size / pageSize) * pageSize;

/** Whether the kernel stores `asked` as `found`; see {@link wholePages}. */
export function isSameLimit(asked: Limit<Bytes>, found: Limit<Bytes>, pageSize: Bytes): boolean {
  return found === asked || (asked !== 'max' && found === wholePages(asked, pageSize));
}

/** Maximum plausible size: 1 PiB, more than any machine has, and small enough that sums of all lines are exact. */
const MOST_BYTES = 2 ** 50;

/** Reads memory.stat. A line that this kernel lacks counts as 0. Throws CGROUP_UNAVAILABLE for other content. */
export function parseMemoryStat(text: string): MemoryStat {
  const lines = parseKeyed(text, 'memory.stat');
  const of = (key: string): number => {
    const value = lines.get(key) ?? 0;
    if (value > MOST_BYTES) throw unexpectedContent('memory.stat', `${key} ${value}`);
    return value;
  };
  // `kernel` (Linux 5.18 and later) includes slab, stacks, page tables, percpu and vmalloc, but not sockets.
  const kernel = lines.has('kernel')
    ? of('kernel')
    : of('kernel_stack') + of('pagetables') + of('percpu') + of('slab_unreclaimable') + of('slab_reclaimable');
  return {
    anon: bytes(of('anon')),
    shmem: bytes(of('shmem')),
    unevictable: bytes(of('unevictable')),
    file: bytes(of('file')),
    inactiveFile: bytes(of('inactive_file')),
    activeAnon: bytes(of('active_anon')),
    inactiveAnon: bytes(of('inactive_anon')),
    kernelUnreclaimable: bytes(Math.max(0, kernel - of('slab_reclaimable')) + of('sock')),
    zswap: bytes(of('zswap')),
    zswapped: bytes(of('zswapped')),
  };
}

/**
 * Returns the bytes of a cgroup that cannot be reclaimed without swap: anon, shmem and unevictable pages, each counted
 * once, and kernel memory that does not shrink. Based on kernel Documentation/admin-guide/cgroup-v2.rst, memory.stat.
 *
 * The sum anon + shmem + unevictable would count pages twice: `anon` and `shmem` count pages on any list, and locked
 * pages and all pages of a tmpfs mounted with noswap (as kubelet mounts its volumes) are on the unevictable list too.
 * The LRU lists are disjoint, so active_anon + inactive_anon + unevictable counts each page once. That sum misses pages
 * that are temporarily on no list (per-CPU batches, pages being moved), which anon + shmem includes. Therefore the
 * larger of the two sums counts.
 *
 * Pages that zswap has compressed are charged as kernel memory (mm/memcontrol.c, obj_cgroup_charge_zswap; Linux 5.19
 * and later). They count as unreclaimable: reclaim writes them to the device only if zswap's shrinker is enabled, which
 * is off by default.
 *
 * Swap is counted separately: see ../swap.ts.
 */
export function unreclaimableOf(stat: MemoryStat): Bytes {
  const onLists = stat.activeAnon + stat.inactiveAnon + stat.unevictable;
  return bytes(Math.max(stat.anon + stat.shmem, onLists) + stat.kernelUnreclaimable);
}

/** Reads the OOM kills from memory.events (with descendants) or memory.events.local (the cgroup only). */
export function parseOomKills(text: string, file: string): number {
  const kills = parseKeyed(text, file).get('oom_kill');
  if (kills === undefined) throw unexpectedContent(file, text);
  return kills;
}

/** Parses a "flat keyed" file: one `key number` per line. */
function parseKeyed(text: string, file: string): Map<string, number> {
  const lines = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '') continue;
    if (!/^\S+ \d+$/.test(line)) throw unexpectedContent(file, line);
    const blank = line.indexOf(' ');
    lines.set(line.slice(0, blank), Number(line.slice(blank)));
  }
  return lines;
}

/** Returns the error for content that the kernel does not document. Quotes the beginning of the content. */
function unexpectedContent(file: string, found: string): ShimError {
  const start = found.slice(0, 80);
  const message = `${file}: unexpected content ${JSON.stringify(start)}`;
  return new ShimError(Code.INTERNAL, Reason.CGROUP_UNAVAILABLE, message, { file, found: start });
}
