/** The memory usage of a cgroup, with and without its swap. */
import { type Bytes, bytes } from '../core/quantities/index.ts';

/** Memory usage of a cgroup and its descendants, in bytes except for `oomKills`. */
export interface MemoryUse {
  readonly current: Bytes;
  /** Memory that cannot be reclaimed: `unreclaimableOf` less {@link swappable}. */
  readonly unreclaimable: Bytes;
  /** Anonymous memory and tmpfs pages that the kernel can write to swap; see `swappableMemory`. */
  readonly swappable: Bytes;
  /** Bytes in swap (memory.swap.current). Part of `unreclaimable` only after {@link withoutSwap}. */
  readonly swapped: Bytes;
  readonly isWithoutSwap?: true;
  readonly anon: Bytes;
  readonly shmem: Bytes;
  readonly unevictable: Bytes;
  readonly file: Bytes;
  /** Kernel memory that does not shrink. Part of `unreclaimable`. */
  readonly kernelUnreclaimable: Bytes;
  /** Number of processes that the OOM killer has killed since the cgroup was created. */
  readonly oomKills: number;
}

/** Describes what is behind the unreclaimable memory, for errors. */
export function usageText({ anon, shmem, unevictable, swappable, swapped, isWithoutSwap }: MemoryUse): string {
  const less = swappable > 0 ? `, less ${swappable} that fit into swap` : '';
  const plus = isWithoutSwap === true && swapped > 0 ? `, and ${swapped} in swap` : '';
  return `anon ${anon}, shmem ${shmem}, unevictable ${unevictable}${less}${plus}`;
}

/**
 * Returns the usage of a cgroup as if it had no swap: nothing can go there, and what is there comes back once it is used, charged to
 * the cgroup.
 */
export const withoutSwap = (use: MemoryUse): MemoryUse =>
  use.isWithoutSwap === true
    ? use
    : {
        ...use,
        unreclaimable: bytes(use.unreclaimable + use.swappable + use.swapped),
        swappable: bytes(0),
        isWithoutSwap: true,
      };

/** The parts of {@link MemoryUse} that the kernel reads from counters. */
export type MemorySample = Pick<MemoryUse, 'current' | 'oomKills'>;
