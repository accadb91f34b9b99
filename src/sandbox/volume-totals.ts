import { ShimError } from '../core/errors/index.ts';
import type { MemoryVolumes } from '../tmpfs/index.ts';

/** Totals of the node. Sizes in bytes. */
export interface VolumeTotals {
  readonly count: number;
  readonly size: number;
  readonly used: number;
}

/** Returns the totals of all memory-backed volumes, without those that are unmounted meanwhile. Zero when they cannot be read. */
export function volumeTotals(volumes: Pick<MemoryVolumes, 'list' | 'measure'>): VolumeTotals {
  const measured = readOrNone(() => volumes.list()).flatMap((volume) => readOrNone(() => [volumes.measure(volume)]));
  return {
    count: measured.length,
    size: measured.reduce((sum, { size }) => sum + size, 0),
    used: measured.reduce((sum, { used }) => sum + used, 0),
  };
}

function readOrNone<Item>(read: () => readonly Item[]): readonly Item[] {
  try {
    return read();
  } catch (error) {
    if (error instanceof ShimError) return [];
    throw error;
  }
}
