import { weightMatchesShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares, cpuWeight } from '../../src/core/quantities/numbers.ts';
import type { CriClient } from '../support/cri/client.ts';
import type { RunningPod } from '../support/cri/pod.ts';
import type { Values } from './scenario.ts';

const FILES = ['memory.max', 'cpu.max', 'cpu.weight', 'memory.high', 'memory.low', 'memory.min', 'memory.swap.max'];
const POD_FILES = FILES;
const CONTAINER_FILES = [...FILES, 'memory.oom.group'];

/** Returns all values that a resize may change. */
export function valuesOf(pod: RunningPod): Values {
  const values: { [name: string]: string } = {};
  for (const file of POD_FILES) values[`pod ${file}`] = pod.read(file);
  for (const name of pod.containers.keys())
    for (const file of CONTAINER_FILES) values[`${name} ${file}`] = pod.read(file, name);
  for (const { name } of pod.volumes) values[`volume ${name}`] = String(pod.volume(name).size);
  return values;
}

/** Returns the processes of each container. */
export const processesOf = (pod: RunningPod): Values =>
  Object.fromEntries([...pod.containers.keys()].map((name) => [name, pod.read('cgroup.procs', name)]));

/** Throws when the sum of the containers' limits is above a finite limit of the pod. */
export function assertWithinPod(values: Values): void {
  const containers = Object.keys(values).flatMap((key) => /^(?!pod )(.*) memory\.max$/.exec(key)?.[1] ?? []);
  for (const [file, amount] of [
    ['memory.max', memory],
    ['cpu.max', rate],
  ] as const) {
    const of = (whose: string): number => amount(values[`${whose} ${file}`] ?? '');
    const sum = containers.reduce((all, name) => all + of(name), 0);
    if (sum > of('pod') * (1 + 1e-6)) throw new Error(`${file}: the containers have ${sum}, the pod ${of('pod')}`);
  }
}

const memory = (text: string): number => (text === 'max' ? Infinity : Number(text));
const rate = (text: string): number => {
  const [quota = '', period] = text.split(' ');
  return memory(quota) / Number(period);
};

/**
 * Throws when ContainerStatus differs from the kernel. With a client of containerd itself, this checks its stored
 * values.
 */
export async function assertReported(client: CriClient, pod: RunningPod, whose: string): Promise<void> {
  for (const [name, id] of pod.containers) {
    const { memory_limit_in_bytes, cpu_quota, cpu_shares } = (await client.containerStatus(id)).resources!.linux!;
    const weight = Number(pod.read('cpu.weight', name));
    const kernel = { memory: pod.read('memory.max', name), quota: pod.read('cpu.max', name).split(' ')[0] };
    const reported = {
      memory: memory_limit_in_bytes <= 0 ? 'max' : String(memory_limit_in_bytes),
      quota: cpu_quota <= 0 ? 'max' : String(cpu_quota),
    };
    const agrees = reported.memory === kernel.memory && reported.quota === kernel.quota;
    if (!agrees || !weightMatchesShares(cpuWeight(weight), cpuShares(cpu_shares))) {
      const [has, says] = [
        { ...kernel, weight },
        { ...reported, shares: cpu_shares },
      ].map((values) => JSON.stringify(values));
      throw new Error(`container ${name}: the kernel has ${has}, ${whose} says ${says}`);
    }
  }
}

/** Returns the differences as readable text: `pod memory.max 1 (not 2)`. */
export function difference(found: Values, wanted: Values): string {
  return Object.keys(wanted)
    .filter((key) => found[key] !== wanted[key])
    .map((key) => `${key} ${found[key]} (not ${wanted[key]})`)
    .join(', ');
}
