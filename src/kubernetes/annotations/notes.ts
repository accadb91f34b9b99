import type { PodState } from '../../sandbox/index.ts';
import { type Resize, excessWarning, formatMemory } from '../../resize/index.ts';

/** The texts of all events. Sizes as Kubernetes writes them; what was asked as it stands in the annotation. */

export function resizedNote(volume: string, text: string, { before, after }: Resize): string {
  const [from, to] = [sizeIn(before, volume), sizeIn(after, volume)];
  if (to === undefined) return `volume ${volume} is as asked (${text})`;
  if (from === undefined || from === to) return `volume ${volume} has ${formatMemory(to)}, as asked (${text})`;
  return `volume ${volume}: ${formatMemory(from)} -> ${formatMemory(to)}, as asked (${text})`;
}

export const deferredNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} is not resized yet (asked: ${text}): ${why}; it is tried again until it fits`;

export const infeasibleNote = (volume: string, text: string, reason: string, why: string): string =>
  `volume ${volume} is not resized (asked: ${text}): ${reason}: ${why}`;

export const canceledNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} is no longer to be resized (asked: ${text}): ${why}`;

/** Undefined when the volume is within the pod's memory limit, or there is none. */
export function exceedsNote(volume: string, { after }: Resize): string | undefined {
  const size = sizeIn(after, volume);
  const excess = after === undefined || size === undefined ? undefined : excessWarning(size, after.memory);
  return excess === undefined ? undefined : `volume ${volume} ${excess}`;
}

const sizeIn = (state: PodState | undefined, volume: string) =>
  state?.volumes.find(({ name }) => name === volume)?.size;
