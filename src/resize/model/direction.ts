import type { ResizeDirection } from '../../observe/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { KnownValues, PodLimits } from './known-values.ts';
import { compareCpu, compareLimits, sameCpu } from './compare.ts';
import type { PodState } from '../../sandbox/index.ts';

/**
 * Returns the direction of limits and sizes from `from` to `to`. Values that are unknown on one side have no direction. Weights have
 * none either: a resize that changes only a weight is `same`.
 */
export function directionOf(to: KnownValues<Bytes>, from: KnownValues<Bytes>): ResizeDirection {
  const changes = [
    ...limitChanges(to.pod, from.pod),
    ...[...(to.containers ?? [])].flatMap(([id, limits]) => limitChanges(limits, from.containers?.get(id))),
    ...[...(to.volumes ?? [])].map(([name, size]) => size - (from.volumes?.get(name) ?? size)),
  ];
  const up = changes.some((change) => change > 0);
  const down = changes.some((change) => change < 0);
  if (up && down) return 'both';
  return up ? 'up' : down ? 'down' : 'same';
}

function limitChanges(to: PodLimits = {}, from: PodLimits = {}): number[] {
  return [
    ...(to.memory === undefined || from.memory === undefined ? [] : [compareLimits(to.memory, from.memory)]),
    ...(to.cpu === undefined || from.cpu === undefined
      ? []
      : [sameCpu(to.cpu, from.cpu) ? 0 : compareCpu(to.cpu, from.cpu)]),
  ];
}

/** Returns the values of a pod's state. */
export const knownOf = ({ memory, cpu, containers, volumes }: PodState): KnownValues<Bytes> => ({
  pod: { memory, cpu },
  containers: new Map(containers.map(({ id, ...limits }) => [id, limits])),
  volumes: new Map(volumes.map(({ name, size }) => [name, size])),
});

/** Returns the sizes of volumes that do not depend on a limit. */
export const absolute = (policies: ReadonlyMap<string, VolumePolicy>): ReadonlyMap<string, Bytes> =>
  new Map([...policies].flatMap(([name, policy]) => (policy.kind === 'absolute' ? [[name, policy.size]] : [])));
