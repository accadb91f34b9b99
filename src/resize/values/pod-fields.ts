import type { LinuxContainerResources } from '../../runtime/index.ts';
import { touchesCpu, touchesMemory } from '../admission/index.ts';
import { type PodField, amountField, volumeField } from '../history/index.ts';
import type { DesiredPod } from '../model/index.ts';

/** Returns the fields that a CRI message sets for a container, or for the pod itself (name undefined). */
export const criFields = (container: string | undefined, resources: LinuxContainerResources | null): PodField[] =>
  resources === null
    ? []
    : [
        ...(touchesMemory(resources) ? [amountField(container, 'limits.memory')] : []),
        ...(touchesCpu(resources) ? [amountField(container, 'limits.cpu')] : []),
        ...(resources.cpu_shares === 0n ? [] : [amountField(container, 'requests.cpu')]),
      ];

/** Returns the fields that ResizePod sets. */
export function desiredFields({ pod, containers, volumes, memoryRequests }: DesiredPod): PodField[] {
  const all: [string | undefined, DesiredPod['pod']][] = [[undefined, pod], ...containers];
  return [
    ...all.flatMap(([name, { memory, cpu, shares }]) => [
      ...(memory === undefined ? [] : [amountField(name, 'limits.memory')]),
      ...(cpu === undefined ? [] : [amountField(name, 'limits.cpu')]),
      ...(shares === undefined ? [] : [amountField(name, 'requests.cpu')]),
    ]),
    ...Object.keys(memoryRequests?.containers ?? {}).map((name) => amountField(name, 'requests.memory')),
    ...(memoryRequests?.pod === undefined ? [] : [amountField(undefined, 'requests.memory')]),
    ...[...volumes.keys()].map(volumeField),
  ];
}
