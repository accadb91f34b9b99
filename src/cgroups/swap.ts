/**
 * Computes how much memory of a cgroup can be swapped out, and how much of its swap returns to memory. Sources: kernel
 * Documentation/admin-guide/cgroup-v2.rst and sysctl/vm.rst, mm/memcontrol.c (mem_cgroup_get_nr_swap_pages,
 * obj_cgroup_charge_zswap) and mm/vmscan.c (get_scan_count).
 */
import { posix } from 'node:path';
import type { Bytes, Limit } from '../core/index.ts';
import { type CgroupFiles, type CgroupPath, isCgroupVanished, isFileMissing } from './file.ts';
import { meminfoSize, procText } from './proc.ts';
import { type MemoryStat, parseLimit, parseMemoryStat, parseSize } from './values/controller-files.ts';

/** memory.swap.max of cgroups after a change. Values above the present one do not count: reclaim comes first. */
export type SwapLimits = ReadonlyMap<CgroupPath, Limit<Bytes>>;

/** How swap changes the memory of a cgroup and its descendants that cannot be reclaimed. In bytes. */
export interface SwapUse {
  /** The memory that reclaim frees when it writes as much as possible to swap. */
  readonly swappable: number;
  /** Swap in use above memory.swap.max: once it is read, it takes memory and cannot go back. */
  readonly excess: number;
}

/**
 * KEP-1287, lowering memory; kernel cgroup-v2, memory.swap.max: returns how swap changes what can be reclaimed, with
 * lower limits on swap if a change sets some. Reclaim writes pages of the anonymous LRU lists (locked pages and those
 * of a tmpfs mounted with noswap are not on these), in each cgroup up to the free swap of it, of the cgroups above it
 * and of the node. Other cgroups may take the same free swap: a limit is lowered only once usage is below it.
 *
 * Lower limits on swap do not move what is in swap (mm/memcontrol.c, swap_max_write). Swap above a new limit returns to
 * memory once it is used. Throws `CgroupVanished`, and CGROUP_UNAVAILABLE for unexpected content.
 */
export async function swapUseOf(
  files: CgroupFiles,
  cgroup: CgroupPath,
  stat: MemoryStat,
  { procRoot, after = NO_CHANGE }: { readonly procRoot: string; readonly after?: SwapLimits | undefined },
): Promise<SwapUse> {
  const node = { files, after };
  const returning = excessOf(node, cgroup);
  const written = await writableOf(node, cgroup, stat, procRoot);
  return {
    swappable: written - staysCompressed(written, stat, zswapLimitOf(files, cgroup)),
    excess: returning - freedOnReturn(returning, stat, () => swapCurrentOf(files, cgroup)),
  };
}

const NO_CHANGE: SwapLimits = new Map();

interface Node {
  readonly files: CgroupFiles;
  readonly after: SwapLimits;
}

/** Returns the bytes that reclaim can write to swap. */
async function writableOf(node: Node, cgroup: CgroupPath, stat: MemoryStat, procRoot: string): Promise<number> {
  const free = freeSwapOf(node, cgroup);
  if (free === 0 || anonymousOf(stat) === 0) return 0;
  const above = ancestorsOf(cgroup).map((each) => freeSwapOf(node, each) ?? Infinity);
  const most = Math.min(free ?? 0, ...above);
  // The node is read last: usually its cgroups have no swap.
  const onNode = most === 0 ? 0 : freeSwapOfNode(procRoot);
  return onNode === 0 ? 0 : Math.min(most, onNode, await writableBelow(node, cgroup, stat));
}

const anonymousOf = ({ activeAnon, inactiveAnon }: MemoryStat): number => activeAnon + inactiveAnon;

/** Returns the bytes that the cgroup (for example memory of ended containers) and its descendants can write to swap. */
async function writableBelow(node: Node, cgroup: CgroupPath, stat: MemoryStat): Promise<number> {
  const { files } = node;
  let [own, below] = [anonymousOf(stat), 0];
  for (const name of files.children(cgroup)) {
    const child = `${cgroup}/${name}`;
    try {
      const held = parseMemoryStat(await files.read(child, 'memory.stat'));
      const free = freeSwapOf(node, child) ?? 0;
      own -= anonymousOf(held);
      if (free > 0) below += Math.min(free, await writableBelow(node, child, held));
    } catch (error) {
      // The cgroup has no memory controller: its memory counts for its parent.
      if (!isCgroupVanished(error) && !isFileMissing(error)) throw error;
    }
  }
  return Math.max(own, 0) + below;
}

/** Returns the bytes in swap above the limits of the cgroup and of the cgroups below. */
function excessOf(node: Node, cgroup: CgroupPath): number {
  const { files } = node;
  const inSwap = swapCurrentOf(files, cgroup);
  if (inSwap === 0) return 0;
  let below = 0;
  for (const name of files.children(cgroup)) {
    try {
      below += excessOf(node, `${cgroup}/${name}`);
    } catch (error) {
      if (!isCgroupVanished(error)) throw error;
    }
  }
  return Math.max(below, inSwap - (maxSwapOf(node, cgroup) ?? Infinity));
}

/**
 * Returns how many of the bytes written to swap stay in memory, compressed by zswap. The cgroup's present pages in
 * zswap show how well its memory compresses. Without such pages, all bytes count as written to the device.
 * memory.zswap.max bounds it: further pages go to the device. Source: kernel cgroup-v2, memory.zswap.max and
 * memory.stat (zswap, zswapped).
 */
function staysCompressed(written: number, { zswap, zswapped }: MemoryStat, limit: number): number {
  if (zswapped === 0) return 0;
  return Math.ceil(Math.min(written * Math.min(1, zswap / zswapped), Math.max(0, limit - zswap)));
}

/** Returns the bytes of zswap that are freed when swap is used. Counts only pages that are certainly in zswap. */
function freedOnReturn(returning: number, { zswap, zswapped }: MemoryStat, inSwap: () => number): number {
  if (zswapped === 0 || returning === 0) return 0;
  const onDevice = Math.max(0, inSwap() - zswapped);
  const freed = Math.floor(Math.min(1, Math.max(0, returning - onDevice) / zswapped) * zswap);
  // Incompressible pages use more memory than they free.
  return Math.min(freed, returning);
}

/**
 * Returns the free swap of one cgroup. From memory.swap.high on, the kernel delays the processes: it counts as the
 * limit. If memory.zswap.writeback is off, nothing reaches a swap device. Undefined without the files: at the root, or
 * without swap accounting.
 */
function freeSwapOf(node: Node, cgroup: CgroupPath): number | undefined {
  const { files } = node;
  const max = maxSwapOf(node, cgroup);
  if (max === undefined) return undefined;
  if (max === 0 || optional(files, cgroup, 'memory.zswap.writeback') === '0') return 0;
  const least = Math.min(max, limitOf(files, cgroup, 'memory.swap.high') ?? Infinity);
  return least === Infinity ? Infinity : Math.max(0, least - swapCurrentOf(files, cgroup));
}

/** Returns the lower one of memory.swap.max and its value after the change. */
function maxSwapOf({ files, after }: Node, cgroup: CgroupPath): number | undefined {
  const now = limitOf(files, cgroup, 'memory.swap.max');
  const then = after.get(cgroup) ?? 'max';
  return now === undefined || then === 'max' ? now : Math.min(now, then);
}

const zswapLimitOf = (files: CgroupFiles, cgroup: CgroupPath): number =>
  limitOf(files, cgroup, 'memory.zswap.max') ?? Infinity;

const swapCurrentOf = (files: CgroupFiles, cgroup: CgroupPath): number =>
  parseSize(optional(files, cgroup, 'memory.swap.current') ?? '0', 'memory.swap.current');

/** Returns a limit; Infinity for `max`, undefined without the file. */
function limitOf(files: CgroupFiles, cgroup: CgroupPath, file: string): number | undefined {
  const text = optional(files, cgroup, file);
  const limit = text === undefined ? undefined : parseLimit(text, file);
  return limit === 'max' ? Infinity : limit;
}

function optional(files: CgroupFiles, cgroup: CgroupPath, file: string): string | undefined {
  try {
    return files.readNow(cgroup, file);
  } catch (error) {
    if (isFileMissing(error)) return undefined;
    throw error;
  }
}

function ancestorsOf(cgroup: CgroupPath): CgroupPath[] {
  const above = posix.dirname(cgroup);
  return above === cgroup ? [] : [above, ...ancestorsOf(above)];
}

/** Returns the free swap of the node, in bytes. 0 with vm.swappiness 0: the reclaim of a cgroup then does not swap. */
function freeSwapOfNode(procRoot: string): number {
  const free = meminfoSize(procRoot, 'SwapFree') ?? 0;
  return free > 0 && procText(procRoot, 'sys/vm/swappiness').trim() === '0' ? 0 : free;
}
