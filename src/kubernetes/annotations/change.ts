import { type AskedPod, type AskedResources, policyText, readAsked } from '../../resize/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';

/** A volume with a changed annotation. `text` undefined: the annotation was removed. */
export interface Change {
  readonly volume: string;
  readonly text: string | undefined;
}

/** The values with which the annotations of a pod are compared. */
export interface Baseline {
  /** Annotations at the creation of the pod. */
  readonly made: Readonly<Record<string, string>>;
  /** The annotations of the last requests; an empty text: removed. Takes precedence over `made`. */
  readonly asked: Readonly<Record<string, string>>;
  /** The current size policy of a volume. */
  readonly policy: (volume: string) => VolumePolicy;
}

/** Returns the first changed annotation. */
export function firstChange(seen: Readonly<Record<string, string>>, baseline: Baseline): Change | undefined {
  const { made, asked } = baseline;
  const volumes = new Set([...Object.keys(seen), ...Object.keys(made), ...Object.keys(asked)]);
  for (const volume of volumes) {
    const text = seen[volume];
    const before = asked[volume] ?? made[volume] ?? '';
    if ((text ?? '') === before) continue;
    // Already in force without a request of ours: set by another client, or by a shim whose journal is lost.
    if (asked[volume] === undefined && text !== undefined && isInForce(volume, text, baseline)) continue;
    return { volume, text };
  }
  return undefined;
}

function isInForce(volume: string, text: string, { policy }: Baseline): boolean {
  try {
    const wanted = readAsked(askedFor({ [volume]: text })).desired.volumes.get(volume);
    return wanted !== undefined && policyText(wanted) === policyText(policy(volume));
  } catch {
    // An invalid annotation is reported when the request is made.
    return false;
  }
}

const nothing: AskedResources = { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } };

/** A request for volumes alone. */
export const askedFor = (volumes: Readonly<Record<string, string>>): AskedPod => ({
  pod: nothing,
  containers: {},
  volumes,
});

/** Whether a request is for volumes alone. */
export function asksForVolumesAlone({ pod, containers, volumes }: AskedPod): boolean {
  const texts = [pod.limits, pod.requests].flatMap(({ cpu, memory }) => [cpu, memory]);
  const isAlone = Object.keys(containers).length === 0 && texts.every((text) => text === '');
  return isAlone && Object.keys(volumes).length > 0;
}
