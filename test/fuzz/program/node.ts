import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { mutateJson, mutateText } from '../mutations/values.ts';
import type { Random } from '../random.ts';
import { cgroupFiles } from '../seeds/kernel.ts';
import { checkpointEntries, cpuState, memoryState } from '../seeds/kubelet.ts';

/** A small node: pods whose cgroups are folders of plain files. */

export interface FakePod {
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly cgroup: string;
  readonly containers: readonly { readonly id: string; readonly name: string }[];
}

const hexadecimal = (kind: string, number: number): string => `${kind}${number.toString(16)}`.padEnd(64, kind);

export const pods: readonly FakePod[] = Array.from({ length: 8 }, (_, index) => {
  const uid = Object.keys(checkpointEntries)[index] ?? `0000000${index}-2fa1-11d2-883f-0016d3cca427`;
  return {
    id: hexadecimal('a', index),
    uid,
    name: `web-${index}`,
    cgroup: `/kubepods/burstable/pod${uid}`,
    containers: ['web', 'sidecar'].map((name, at) => ({ id: hexadecimal('c', 2 * index + at), name })),
  };
});

export const podOf = (containerId: string): FakePod | undefined =>
  pods.find(({ containers }) => containers.some(({ id }) => id === containerId));

/** The folders that the program is started with. */
export interface Folders {
  readonly cgroups: string;
  readonly kubelet: string;
}

export function makeNode({ cgroups, kubelet }: Folders): void {
  mkdirSync(kubelet, { recursive: true });
  mkdirSync(cgroups, { recursive: true });
  writeFileSync(join(cgroups, 'cgroup.controllers'), 'cpu memory\n');
  for (const folder of pods.flatMap(cgroupsOf)) {
    mkdirSync(join(cgroups, folder), { recursive: true });
    for (const [name, text] of Object.entries(cgroupFiles)) writeFileSync(join(cgroups, folder, name), text);
  }
}

const cgroupsOf = ({ cgroup, containers }: FakePod): readonly string[] => [
  cgroup,
  ...containers.map(({ id }) => `${cgroup}/${id}`),
];

const names = Object.keys(cgroupFiles) as (keyof typeof cgroupFiles)[];

/** Replaces one file of kubelet or of a cgroup by a hostile or a torn one, and sometimes by a good one. */
export function tearFile({ cgroups, kubelet }: Folders, random: Random): void {
  const isGood = random.chance(3);
  if (random.chance(2)) {
    const file = random.pick(names);
    const text = isGood ? cgroupFiles[file] : mutateText(cgroupFiles[file], random);
    writeFileSync(join(cgroups, random.pick(cgroupsOf(random.pick(pods))), file), text);
    return;
  }
  const checkpoint = (): string =>
    JSON.stringify({
      data: isGood
        ? JSON.stringify({ entries: checkpointEntries })
        : mutateJson({ entries: checkpointEntries }, random),
    });
  const files: readonly (readonly [string, () => string])[] = [
    ['allocated_pods_state', checkpoint],
    ['actuated_pods_state', checkpoint],
    ['cpu_manager_state', () => (isGood ? JSON.stringify(cpuState) : mutateJson(cpuState, random))],
    ['memory_manager_state', () => (isGood ? JSON.stringify(memoryState) : mutateJson(memoryState, random))],
  ];
  const [file, make] = random.pick(files);
  writeFileSync(join(kubelet, file), make());
}
