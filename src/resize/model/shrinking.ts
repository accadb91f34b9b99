import type { Bytes } from '../../core/quantities/index.ts';
import type { PodState } from '../../sandbox/index.ts';

/** Returns the sizes that shrink a volume: those apply before memory limits change (KEP-6030). */
export function onlyShrinking(state: PodState, sizes: ReadonlyMap<string, Bytes>): ReadonlyMap<string, Bytes> {
  return new Map(
    state.volumes.flatMap(({ name, size }): [string, Bytes][] => {
      const to = sizes.get(name);
      return to !== undefined && to < size ? [[name, to]] : [];
    }),
  );
}
