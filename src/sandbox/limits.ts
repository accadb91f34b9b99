import type { PodDescription } from '../runtime/index.ts';
import type { Bytes, Limit } from '../units/index.ts';
import type { ResizeContext } from './context.ts';
import type { PodState } from './state.ts';

/** A pod's memory limits by the names that it gives its containers: what a volume's share of a container counts from. */
export function limitsByName(
  context: ResizeContext,
  pod: PodDescription,
  state: PodState,
): ReadonlyMap<string, Limit<Bytes>> {
  const names = new Map(context.registry.containersOf(pod.sandboxId).map((known) => [known.containerId, known.name]));
  return new Map(
    state.containers.flatMap(({ id, memory }): [string, Limit<Bytes>][] => {
      const name = names.get(id);
      return name === undefined ? [] : [[name, memory]];
    }),
  );
}

/** Of the wanted sizes those that make a volume smaller. */
export function onlyShrinking(state: PodState, sizes: ReadonlyMap<string, Bytes>): ReadonlyMap<string, Bytes> {
  return new Map(
    state.volumes.flatMap(({ name, size }): [string, Bytes][] => {
      const to = sizes.get(name);
      return to !== undefined && to < size ? [[name, to]] : [];
    }),
  );
}
