import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Log } from '../../observe/index.ts';
import { type PodTarget, formatMemory, sameMemory } from '../model/index.ts';
import type { PodState } from '../../sandbox/index.ts';

/**
 * What there is to warn of when a volume can hold more than its pod's memory limit, which is allowed; undefined when it cannot.
 * The kernel rounds the one up to a page and the other down.
 */
export function excessOf(size: Bytes, podLimit: Limit<Bytes>): string | undefined {
  if (podLimit === 'max' || size <= podLimit || sameMemory(size, podLimit)) return undefined;
  const [has, limit] = [formatMemory(size), formatMemory(podLimit)];
  return `has ${has}, more than the memory limit of the pod, ${limit}: a process may be killed before the volume is full`;
}

/** Says so in the log of each volume that a resize has left above the limit, or has left the limit below. */
export function warnOfExcess(
  context: { readonly log: Log },
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
): void {
  const { memory = state.memory } = target;
  for (const { name, size: before } of state.volumes) {
    const size = target.volumes.get(name) ?? before;
    const excess = excessOf(size, memory);
    if (excess === undefined || (size === before && memory === state.memory)) continue;
    const fields = { pod: pod.sandboxId, uid: pod.metadata.uid, volume: name, size, memoryLimit: memory };
    context.log.warn(fields, `volume ${excess}`);
  }
}
