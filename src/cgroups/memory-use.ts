/** The memory in use of a cgroup, and the part of it that cannot be reclaimed. */
import type { Bytes } from '../core/index.ts';

/** Memory usage of a cgroup and its descendants, in bytes except for `oomKills`. */
export interface MemoryUse {
  readonly current: Bytes;
  /** Memory that cannot be reclaimed: `unreclaimableOf` less `swappable`, and `swapExcess`. */
  readonly unreclaimable: Bytes;
  /** The memory that the kernel can free by writing anonymous memory and tmpfs pages to swap; see `swapUseOf`. */
  readonly swappable: Bytes;
  /** Bytes in swap above memory.swap.max, which come back once they are used; see `swapUseOf`. */
  readonly swapExcess: Bytes;
  readonly anon: Bytes;
  readonly shmem: Bytes;
  readonly unevictable: Bytes;
  readonly file: Bytes;
  /** Kernel memory that does not shrink. Part of `unreclaimable`. */
  readonly kernelUnreclaimable: Bytes;
  /** Number of processes that the OOM killer has killed since the cgroup was created. */
  readonly oomKills: number;
}

/** Describes the parts of the unreclaimable memory, for errors. */
export function usageText({ anon, shmem, unevictable, swappable, swapExcess }: MemoryUse): string {
  const less = swappable > 0 ? `, less ${swappable} that fit into swap` : '';
  const plus = swapExcess > 0 ? `, and ${swapExcess} in swap above its limit` : '';
  return `anon ${anon}, shmem ${shmem}, unevictable ${unevictable}${less}${plus}`;
}

/** The parts of {@link MemoryUse} that the kernel reads from counters. */
export type MemorySample = Pick<MemoryUse, 'current' | 'oomKills'>;
