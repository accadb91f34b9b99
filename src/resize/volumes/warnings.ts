import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Log } from '../../observe/index.ts';
import { type PodTarget, formatMemory, sameMemory } from '../model/index.ts';
import type { PodState } from '../../sandbox/index.ts';

/**
 * KEP-6030: a volume may be larger than its pod's memory limit, with a warning. Returns the warning; undefined if it is not larger.
 * Sizes that differ only by rounding are equal: the kernel rounds a tmpfs size up to a page, and memory.max down.
 * @param sizeLimit of the volume, as far as it is known: above it, kubelet evicts the pod
 */
export function excessWarning(size: Bytes, podLimit: Limit<Bytes>, sizeLimit?: Bytes): string | undefined {
  if (sizeLimit !== undefined && size > sizeLimit && !sameMemory(size, sizeLimit))
    return `has ${formatMemory(size)}, more than its sizeLimit, ${formatMemory(sizeLimit)}: kubelet evicts the pod if more is stored`;
  if (podLimit === 'max' || size <= podLimit || sameMemory(size, podLimit)) return undefined;
  const [has, limit] = [formatMemory(size), formatMemory(podLimit)];
  return `has ${has}, more than the memory limit of the pod, ${limit}: a process may be killed before the volume is full`;
}

/** Logs a warning for each volume that is larger than the pod's memory limit after a resize of either. */
export function warnAboutExcess(
  context: { readonly log: Log },
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
): void {
  const { memory = state.memory } = target;
  for (const { name, size: before } of state.volumes) {
    const size = target.volumes.get(name) ?? before;
    const excess = excessWarning(size, memory);
    if (excess === undefined || (size === before && memory === state.memory)) continue;
    const fields = { pod: pod.sandboxId, uid: pod.metadata.uid, volume: name, size, memoryLimit: memory };
    context.log.warn(fields, 'volume larger than the memory limit of its pod');
  }
}
