/** The memory controller's files: what they say, and how a value for them is written. Sizes in bytes. */
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import { bytes } from '../core/quantities/index.ts';
import type { Bytes, Limit } from '../core/quantities/index.ts';

/** The least that a limit can be, a page of most machines, in bytes: of less the kernel makes 0, which kills all there is. */
export const MIN_MEMORY_LIMIT = bytes(4096);

/** The memory controller's files that hold one size or `max`. */
export type MemoryLimitFile = 'memory.max' | 'memory.high' | 'memory.low' | 'memory.min' | 'memory.swap.max';

/** What a cgroup and all cgroups beneath it hold in memory, in bytes, from memory.stat. */
export interface MemoryStat {
  /** Anonymous memory that is mapped, locked or not. */
  readonly anon: Bytes;
  /** tmpfs files, shared memory segments, shared anonymous mappings; part of `file`. */
  readonly shmem: Bytes;
  /** Pages on the unevictable list: locked ones (anon, shmem or file), and all of a tmpfs mounted with noswap. */
  readonly unevictable: Bytes;
  /** Page cache, tmpfs included. */
  readonly file: Bytes;
  readonly inactiveFile: Bytes;
  /** Pages on the lists of what only swap could take: anon and shmem that are not unevictable. */
  readonly activeAnon: Bytes;
  readonly inactiveAnon: Bytes;
  /** Memory of the kernel itself, charged to this cgroup, that does not shrink under pressure. */
  readonly kernelUnreclaimable: Bytes;
}

/**
 * Reads a file that holds one size or `max`. A size past 2^53, which no machine has, is as good as `max`, and read so: who has set
 * it must not keep the rest of the pod from being understood. Throws CGROUP_UNAVAILABLE when it holds anything else.
 */
export function parseLimit(text: string, file: string): Limit<Bytes> {
  return text === 'max' || (/^\d{16,20}$/.test(text) && Number(text) > Number.MAX_SAFE_INTEGER)
    ? 'max'
    : parseSize(text, file);
}

/** Reads a file that holds one number of bytes. Throws CGROUP_UNAVAILABLE when it holds anything else. */
export function parseSize(text: string, file: string): Bytes {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw unreadable(file, text);
  return bytes(value);
}

export const formatLimit = (limit: Limit<Bytes>): string => String(limit);

/** Whether the kernel's value is the asked one. The kernel counts in pages, and rounds a size down to whole ones. */
export function isSameLimit(asked: Limit<Bytes>, found: Limit<Bytes>, pageSize: Bytes): boolean {
  return found === asked || (asked !== 'max' && found === asked - (asked % pageSize));
}

/** Reads memory.stat. A line that this kernel does not have counts as 0. */
export function parseMemoryStat(text: string): MemoryStat {
  const lines = parseKeyed(text, 'memory.stat');
  const of = (key: string): number => lines.get(key) ?? 0;
  // `kernel` is there from Linux 5.18 on, and holds slab, stacks, page tables, percpu and vmalloc; sockets are apart.
  const kernel =
    lines.get('kernel') ??
    of('kernel_stack') + of('pagetables') + of('percpu') + of('slab_unreclaimable') + of('slab_reclaimable');
  return {
    anon: bytes(of('anon')),
    shmem: bytes(of('shmem')),
    unevictable: bytes(of('unevictable')),
    file: bytes(of('file')),
    inactiveFile: bytes(of('inactive_file')),
    activeAnon: bytes(of('active_anon')),
    inactiveAnon: bytes(of('inactive_anon')),
    kernelUnreclaimable: bytes(Math.max(0, kernel - of('slab_reclaimable')) + of('sock')),
  };
}

/**
 * How much of a cgroup's memory cannot be reclaimed without swap: anon, shmem and unevictable pages, each counted once,
 * and the kernel's own memory that does not shrink.
 *
 * The plain sum anon + shmem + unevictable counts pages twice: `anon` and `shmem` count a page whatever list it is on,
 * and locked pages, and every page of a tmpfs mounted with noswap (as kubelet mounts its volumes), are on the
 * unevictable list as well. The LRU lists are disjoint, so active_anon + inactive_anon + unevictable counts each once.
 * It misses pages that are not on a list for the moment (batches of each CPU, pages being moved), which anon + shmem
 * does not: the larger of the two is taken.
 *
 * Swap is left out of account, though it could take anon and shmem: the figure is then too high, so a limit may be
 * refused that would have fitted, and never one set that does not fit.
 */
export function unreclaimableOf(stat: MemoryStat): Bytes {
  const onLists = stat.activeAnon + stat.inactiveAnon + stat.unevictable;
  return bytes(Math.max(stat.anon + stat.shmem, onLists) + stat.kernelUnreclaimable);
}

/** The count of OOM kills in memory.events (whole subtree) or memory.events.local (this cgroup alone). */
export function parseOomKills(text: string, file: string): number {
  const kills = parseKeyed(text, file).get('oom_kill');
  if (kills === undefined) throw unreadable(file, text);
  return kills;
}

/** A "flat keyed" file: one `key number` in each line. */
function parseKeyed(text: string, file: string): Map<string, number> {
  const lines = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '') continue;
    if (!/^\S+ \d+$/.test(line)) throw unreadable(file, line);
    const blank = line.indexOf(' ');
    lines.set(line.slice(0, blank), Number(line.slice(blank)));
  }
  return lines;
}

function unreadable(file: string, found: string): ShimError {
  const message = `${file}: cannot make sense of ${JSON.stringify(found.slice(0, 80))}`;
  return new ShimError(Code.INTERNAL, Reason.CGROUP_UNAVAILABLE, message, { file, found: found.slice(0, 80) });
}
