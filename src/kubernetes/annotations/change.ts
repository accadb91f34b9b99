import { policyText, type RequestedPod, type RequestedResources, readRequested } from '../../sandbox/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';

/** A volume with a changed annotation. `text` undefined: the annotation was removed. */
export interface Change {
  readonly volume: string;
  readonly text: string | undefined;
}

/** The values with which the annotations of a pod are compared. */
export interface Baseline {
  /** Annotations at the creation of the pod. */
  readonly atCreation: Readonly<Record<string, string>>;
  /** The annotations of the last requests; an empty text: removed. Takes precedence over `atCreation`. */
  readonly requested: Readonly<Record<string, string>>;
  /** The current size policy of a volume. */
  readonly policy: (volume: string) => VolumePolicy;
}

/** Returns the text of a volume. A pod's author chooses the names of volumes, and every object has a `constructor`. */
export const textOf = (texts: Readonly<Record<string, string>>, volume: string): string | undefined =>
  Object.hasOwn(texts, volume) ? texts[volume] : undefined;

/** Returns the first changed annotation. */
export function firstChange(seen: Readonly<Record<string, string>>, baseline: Baseline): Change | undefined {
  const { atCreation, requested } = baseline;
  const volumes = new Set([...Object.keys(seen), ...Object.keys(atCreation), ...Object.keys(requested)]);
  for (const volume of volumes) {
    const text = textOf(seen, volume);
    const before = textOf(requested, volume) ?? textOf(atCreation, volume) ?? '';
    if ((text ?? '') === before) continue;
    // Already in force without our request: set by another client, or by a shim whose journal is lost.
    if (textOf(requested, volume) === undefined && text !== undefined && isInForce(volume, text, baseline)) continue;
    return { volume, text };
  }
  return undefined;
}

function isInForce(volume: string, text: string, { policy }: Baseline): boolean {
  try {
    const wanted = readRequested(requestFor({ [volume]: text })).desired.volumes.get(volume);
    return wanted !== undefined && policyText(wanted) === policyText(policy(volume));
  } catch {
    // An invalid annotation is reported when the request is made.
    return false;
  }
}

const nothing: RequestedResources = { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } };

/** Returns a request that only changes volumes. */
export const requestFor = (volumes: Readonly<Record<string, string>>): RequestedPod => ({
  pod: nothing,
  containers: {},
  volumes,
});

/** Whether a request is for volumes alone. */
export function isForVolumesOnly({ pod, containers, volumes }: RequestedPod): boolean {
  const texts = [pod.limits, pod.requests].flatMap(({ cpu, memory }) => [cpu, memory]);
  const isAlone = Object.keys(containers).length === 0 && texts.every((text) => text === '');
  return isAlone && Object.keys(volumes).length > 0;
}
