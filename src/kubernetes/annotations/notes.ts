import type { PodState } from '../../sandbox/index.ts';
import { type Resize, excessWarning, formatMemory } from '../../resize/index.ts';

/** The texts of all events. Sizes are Kubernetes quantities; the requested size is the text of the annotation. */

export function resizedNote(volume: string, text: string, { before, after }: Resize): string {
  const [from, to] = [sizeIn(before, volume), sizeIn(after, volume)];
  if (to === undefined) return `volume ${volume} is as requested (${text})`;
  if (from === undefined || from === to) return `volume ${volume} has ${formatMemory(to)}, as requested (${text})`;
  return `volume ${volume}: ${formatMemory(from)} -> ${formatMemory(to)}, as requested (${text})`;
}

/** Returns the text of an event about a resize that does not fit yet. */
export const deferredNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} is not resized yet (requested: ${text}): ${why}; the shim retries until it fits`;

/** Returns the text of an event about a resize that was rejected or has failed. */
export const infeasibleNote = (volume: string, text: string, reason: string, why: string): string =>
  `volume ${volume} is not resized (requested: ${text}): ${reason}: ${why}`;

/** Returns the text of an event about a resize that was canceled. */
export const canceledNote = (volume: string, text: string, why: string): string =>
  `volume ${volume} resize was canceled (requested: ${text}): ${why}`;

/** Undefined if the volume is within the memory limit of the pod, or there is no limit. */
export function exceedsNote(volume: string, { after }: Resize): string | undefined {
  const size = sizeIn(after, volume);
  const excess = after === undefined || size === undefined ? undefined : excessWarning(size, after.memory);
  return excess === undefined ? undefined : `volume ${volume} ${excess}`;
}

const sizeIn = (state: PodState | undefined, volume: string) =>
  state?.volumes.find(({ name }) => name === volume)?.size;
