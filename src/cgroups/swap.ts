/**
 * How much memory of a cgroup can go to swap. Sources: kernel Documentation/admin-guide/cgroup-v2.rst and sysctl/vm.rst, mm/memcontrol.c
 * (mem_cgroup_get_nr_swap_pages) and mm/vmscan.c (get_scan_count).
 */
import { readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { type CgroupFiles, type CgroupPath, isCgroupVanished, isFileMissing } from './file.ts';
import { type MemoryStat, parseLimit, parseMemoryStat, parseSize } from './memory.ts';

/**
 * Returns the bytes of a cgroup and its descendants that reclaim can write to swap: pages on the anonymous LRU lists (locked pages and
 * those of a tmpfs mounted with noswap are not on these), in each cgroup up to the free swap of it, of the cgroups above it and of the
 * node. Other cgroups may take the same free swap: a limit is lowered only once usage is below it. Throws `CgroupVanished`, and
 * CGROUP_UNAVAILABLE for unexpected content.
 */
export async function swappableMemory(
  files: CgroupFiles,
  cgroup: CgroupPath,
  stat: MemoryStat,
  procRoot: string,
): Promise<number> {
  const free = freeSwapOf(files, cgroup);
  if (free === 0 || anonymousOf(stat) === 0) return 0;
  const above = ancestorsOf(cgroup).map((each) => freeSwapOf(files, each) ?? Infinity);
  const most = Math.min(free ?? 0, ...above);
  // The node is read last: usually its cgroups have no swap.
  const onNode = most === 0 ? 0 : freeSwapOfNode(procRoot);
  return onNode === 0 ? 0 : Math.min(most, onNode, await swappableBelow(files, cgroup, stat));
}

const anonymousOf = ({ activeAnon, inactiveAnon }: MemoryStat): number => activeAnon + inactiveAnon;

/** Returns what the cgroups below let go to swap, and what the cgroup has itself: memory of ended containers, for example. */
async function swappableBelow(files: CgroupFiles, cgroup: CgroupPath, stat: MemoryStat): Promise<number> {
  let [own, below] = [anonymousOf(stat), 0];
  for (const name of files.children(cgroup)) {
    const child = `${cgroup}/${name}`;
    try {
      const held = parseMemoryStat(await files.read(child, 'memory.stat'));
      const free = freeSwapOf(files, child) ?? 0;
      own -= anonymousOf(held);
      if (free > 0) below += Math.min(free, await swappableBelow(files, child, held));
    } catch (error) {
      // A cgroup without the memory controller: its memory counts for the cgroup above.
      if (!isCgroupVanished(error) && !isFileMissing(error)) throw error;
    }
  }
  return Math.max(own, 0) + below;
}

/**
 * Returns the free swap of one cgroup. From memory.swap.high on, the kernel delays the processes: it counts as the limit. Without
 * memory.zswap.writeback nothing reaches a swap device. Undefined without the files: at the root, or without swap accounting.
 */
function freeSwapOf(files: CgroupFiles, cgroup: CgroupPath): number | undefined {
  const read = (file: string): string | undefined => {
    try {
      return files.readNow(cgroup, file);
    } catch (error) {
      if (isFileMissing(error)) return undefined;
      throw error;
    }
  };
  const max = read('memory.swap.max');
  if (max === undefined) return undefined;
  if (max === '0' || read('memory.zswap.writeback') === '0') return 0;
  const limits = [
    parseLimit(max, 'memory.swap.max'),
    parseLimit(read('memory.swap.high') ?? 'max', 'memory.swap.high'),
  ];
  const least = Math.min(...limits.map((limit) => (limit === 'max' ? Infinity : limit)));
  return least === Infinity
    ? Infinity
    : Math.max(0, least - parseSize(read('memory.swap.current') ?? '0', 'memory.swap.current'));
}

function ancestorsOf(cgroup: CgroupPath): CgroupPath[] {
  const above = posix.dirname(cgroup);
  return above === cgroup ? [] : [above, ...ancestorsOf(above)];
}

/**
 * Returns SwapFree of /proc/meminfo in bytes (proc_meminfo(5): the unit is 1024 bytes). 0 with vm.swappiness 0: the reclaim of a cgroup
 * then does not swap. A file that cannot be read tells of no swap.
 */
function freeSwapOfNode(procRoot: string): number {
  const [, kibibytes = '0'] = /^SwapFree:\s+(\d{1,12}) kB$/m.exec(textOf(join(procRoot, 'meminfo'))) ?? [];
  if (kibibytes === '0' || textOf(join(procRoot, 'sys/vm/swappiness')).trim() === '0') return 0;
  return Number(kibibytes) * 1024;
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
