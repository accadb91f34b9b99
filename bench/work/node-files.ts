import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkpointText } from '../../test/support/checkpoint-text.ts';
import { amountsAtStart, bytesOf, type FakePod } from '../fake/pods.ts';

/** kubelet's checkpoints, which foresight reads. */
export const CHECKPOINTS = ['allocated_pods_state', 'actuated_pods_state'] as const;

/**
 * Writes kubelet's checkpoints of these pods, as kubelet does: each file as a whole, renamed into place.
 * @param moreMi by how much the memory limits exceed those at the start, in MiB, so that each file differs
 */
export function writeCheckpoints(kubeletRoot: string, pods: readonly FakePod[], moreMi: number): void {
  mkdirSync(kubeletRoot, { recursive: true });
  const entries = Object.fromEntries(pods.map((pod) => [pod.pod.uid, entryOf(pod, moreMi)]));
  const text = checkpointText(entries);
  for (const name of CHECKPOINTS) {
    writeFileSync(join(kubeletRoot, `${name}.new`), text);
    renameSync(join(kubeletRoot, `${name}.new`), join(kubeletRoot, name));
  }
}

function entryOf({ containers }: FakePod, moreMi: number): Parameters<typeof checkpointText>[0][string] {
  const resources = containers.map(({ name }, index) => {
    const { memoryMi, milliCpu } = amountsAtStart(index);
    const both = { cpu: `${milliCpu}m`, memory: String(bytesOf(memoryMi + moreMi)) };
    return [name, { limits: both, requests: both }] as const;
  });
  return { ContainerResources: Object.fromEntries(resources) };
}
