import { type AskedPod, type AskedResources, policyText, readAsked } from '../../resize/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';

/** A volume whose annotation is not what it was. `text` undefined: it has been taken away. */
export interface Change {
  readonly volume: string;
  readonly text: string | undefined;
}

/** What a pod's annotations are compared with. */
export interface Baseline {
  /** What the pod was made with. */
  readonly made: Readonly<Record<string, string>>;
  /** What they have last asked for; an empty text: taken away. Goes before `made`. */
  readonly asked: Readonly<Record<string, string>>;
  /** What decides the volume's size now. */
  readonly policy: (volume: string) => VolumePolicy;
}

/** The first annotation that says something else than before. Pure. */
export function firstChange(seen: Readonly<Record<string, string>>, baseline: Baseline): Change | undefined {
  const { made, asked } = baseline;
  const volumes = new Set([...Object.keys(seen), ...Object.keys(made), ...Object.keys(asked)]);
  for (const volume of volumes) {
    const text = seen[volume];
    const before = asked[volume] ?? made[volume] ?? '';
    if ((text ?? '') === before) continue;
    // Never asked from here, and so already: by another way, or by a shim whose journal is gone.
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
    // It makes no sense, which is to be said by whoever carries it out.
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
