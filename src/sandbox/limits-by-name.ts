import type { PodDescription } from '../runtime/index.ts';
import type { Bytes, Limit } from '../core/quantities/index.ts';
import type { PodState } from './pod-state.ts';
import type { Registry } from './registry.ts';

/**
 * Returns the memory limits of a pod's containers by container name: the base of a volume's `50%/<container>` size. Of a running
 * container the kernel's limit counts, of any other the declared one. A container whose limits no source knows is left out.
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
