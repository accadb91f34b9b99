import { type Bytes, type Limit, ShimError } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { PodState } from './pod-state.ts';
import type { Registry } from './registry.ts';

/** Totals of the node. Sizes in bytes. */
export interface VolumeTotals {
  readonly count: number;
  readonly size: number;
  readonly used: number;
}

/** Returns the totals of all memory-backed volumes still mounted. Zero if they cannot be read. */
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

/**
 * Returns the memory limits of a pod's containers by container name: the base of a volume's `50%/<container>` size.
 * Running containers count with the kernel's limit, others with the declared one. Omits containers with unknown limits.
 */
export function limitsByName(
  parts: { readonly registry: Registry },
  pod: PodDescription,
  { containers, declared }: PodState,
): ReadonlyMap<string, Limit<Bytes>> {
  const live = new Map(containers.map(({ id, memory }) => [id, memory]));
  const known = parts.registry.containersOf(pod.sandboxId).map(({ containerId, name }) => ({ name, id: containerId }));
  const limits = new Map<string, Limit<Bytes>>();
  for (const { name, id } of known) {
    const memory = live.get(id);
    if (memory !== undefined) limits.set(name, memory);
  }
  for (const { name, id, limits: own } of declared?.containers ?? []) {
    const memory = live.get(id ?? '') ?? (own && (own.memory ?? 'max'));
    if (memory !== undefined) limits.set(name, memory);
  }
  return limits;
}
