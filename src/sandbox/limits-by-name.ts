import type { PodDescription } from '../runtime/index.ts';
import type { Bytes, Limit } from '../core/quantities/index.ts';
import type { PodState } from './pod-state.ts';
import type { Registry } from './registry.ts';

/** Returns the memory limits of a pod's containers by container name: the base of a volume's `50%/<container>` size. */
export function limitsByName(
  parts: { readonly registry: Registry },
  pod: PodDescription,
  state: PodState,
): ReadonlyMap<string, Limit<Bytes>> {
  const names = new Map(parts.registry.containersOf(pod.sandboxId).map((known) => [known.containerId, known.name]));
  return new Map(
    state.containers.flatMap(({ id, memory }): [string, Limit<Bytes>][] => {
      const name = names.get(id);
      return name === undefined ? [] : [[name, memory]];
    }),
  );
}
