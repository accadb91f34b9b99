import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { weightOfShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { makeContainers, makePods, type StoredContainer, type StoredPod } from '../containerd/stored-node.ts';

/** The pods of the fake node, with the files that the kernel would have for them. */

export interface FakePod {
  readonly pod: StoredPod;
  readonly containers: readonly StoredContainer[];
}

/** Creates pods with this many containers each, with the same values in each process. */
export const makeNode = (pods: number, containers: number): FakePod[] =>
  makePods(pods).map((pod) => ({ pod, containers: makeContainers([pod], containers) }));

/** The limits of a container. Its CPU request equals its limit. */
export interface Amounts {
  readonly memoryMi: number;
  readonly milliCpu: number;
}

/** The initial values of the containers of a pod, by their order. */
export const amountsAtStart = (index: number): Amounts => ({
  memoryMi: 128 + 64 * index,
  milliCpu: 100 + 50 * index,
});

const PERIOD = 100_000;

/** Converts milliCPU to CPU shares as kubelet does. */
export const sharesOf = (milliCpu: number): number => Math.floor((milliCpu * 1024) / 1000);
export const bytesOf = (memoryMi: number): number => memoryMi * MiB;
export const quotaOf = (milliCpu: number): number => (milliCpu * PERIOD) / 1000;

/** The files that a resize changes with their content, as runc writes them for a container. */
export type LimitFiles = Readonly<Record<'memory.max' | 'cpu.max' | 'cpu.weight', string>>;

export const containerFiles = ({ memoryMi, milliCpu }: Amounts): LimitFiles => ({
  'memory.max': String(bytesOf(memoryMi)),
  'cpu.max': `${quotaOf(milliCpu)} ${PERIOD}`,
  'cpu.weight': String(weightOfShares(cpuShares(sharesOf(milliCpu)), 'new')),
});

/** The files of a pod as kubelet writes them, with the sums of its containers. */
export function podFiles(containers: readonly Amounts[]): LimitFiles {
  const memoryMi = containers.reduce((sum, container) => sum + container.memoryMi, 0);
  const milliCpu = containers.reduce((sum, container) => sum + container.milliCpu, 0);
  return {
    ...containerFiles({ memoryMi, milliCpu }),
    'cpu.weight': String(weightOfShares(cpuShares(podShares(containers)), 'old')),
  };
}

export const podShares = (containers: readonly Amounts[]): number =>
  containers.reduce((sum, { milliCpu }) => sum + sharesOf(milliCpu), 0);

/** Files that do not change: little usage, and no kills. A kernel with memory and swap accounting has all of them. */
const otherFiles: Readonly<Record<string, string>> = {
  'cpu.max.burst': '0',
  'memory.current': String(20 * MiB),
  'memory.high': 'max',
  'memory.low': '0',
  'memory.min': '0',
  'memory.swap.current': '0',
  'memory.swap.max': '0',
  'memory.stat': [`anon ${8 * MiB}`, `file ${12 * MiB}`, 'shmem 0', 'unevictable 0', `active_anon ${8 * MiB}`].join(
    '\n',
  ),
  'memory.events': ['low 0', 'high 0', 'max 0', 'oom 0', 'oom_kill 0', 'oom_group_kill 0'].join('\n'),
};

export const cgroupOf = ({ id, pod }: StoredContainer): string => join(pod.cgroupParent, id);

/**
 * Creates the cgroups of these pods and their containers below `root`, with the initial values.
 * @param podMoreMi by how much the pods' own memory limits exceed the sums of their containers, in MiB
 */
export async function writePods(
  root: string,
  pods: readonly FakePod[],
  { podMoreMi } = { podMoreMi: 0 },
): Promise<void> {
  const none = { 'memory.max': 'max', 'cpu.max': `max ${PERIOD}`, 'cpu.weight': '100' };
  for (const parent of ['/kubepods', '/kubepods/burstable']) await writeCgroup(root, parent, none);
  for (const { pod, containers } of pods) {
    const limits = podFiles(containers.map((_, index) => amountsAtStart(index)));
    const memory = String(Number(limits['memory.max']) + bytesOf(podMoreMi));
    await writeCgroup(root, pod.cgroupParent, { ...limits, 'memory.max': memory });
    for (const [index, container] of containers.entries())
      await writeCgroup(root, cgroupOf(container), containerFiles(amountsAtStart(index)));
  }
}

async function writeCgroup(root: string, cgroup: string, limits: LimitFiles): Promise<void> {
  const folder = join(root, cgroup);
  await mkdir(folder, { recursive: true });
  for (const [file, value] of Object.entries({ ...otherFiles, ...limits }))
    await writeFile(join(folder, file), `${value}\n`);
}

/** Throws unless the files of a pod and its containers have these amounts. */
export function assertFiles(root: string, pod: FakePod, amounts: readonly Amounts[]): void {
  assertCgroup(root, pod.pod.cgroupParent, podFiles(amounts));
  assertContainerFiles(root, pod, amounts);
}

/** Throws unless the files of a pod's containers have these amounts. */
export function assertContainerFiles(root: string, { containers }: FakePod, amounts: readonly Amounts[]): void {
  containers.forEach((container, index) => {
    const wanted = amounts[index];
    if (wanted !== undefined) assertCgroup(root, cgroupOf(container), containerFiles(wanted));
  });
}

function assertCgroup(root: string, cgroup: string, wanted: LimitFiles): void {
  for (const [file, value] of Object.entries(wanted)) {
    const found = readFileSync(join(root, cgroup, file), 'utf8').trim();
    if (found !== value) throw new Error(`${cgroup}/${file} is ${found}, and should be ${value}`);
  }
}
