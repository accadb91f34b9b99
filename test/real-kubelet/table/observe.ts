import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { QosClass } from '../../support/cri/pod-cgroup.ts';
import { containerFolder, podCgroupFolder } from '../../support/cri/pod-cgroup.ts';
import type { Api } from '../api.ts';
import type { ContainerStatus, Pod, Reported } from './pod.ts';
import { allStatuses } from './row.ts';

const files = [
  'memory.max',
  'memory.high',
  'memory.min',
  'memory.low',
  'memory.swap.max',
  'cpu.max',
  'cpu.weight',
] as const;

/** User Mode Linux lacks these files. */
const cpusets = ['cpuset.cpus', 'cpuset.cpus.effective'] as const;

/** Reads a pod's fields from the API object, the cgroup files and the volumes. */
export function observePod(pod: Pod): Record<string, string> {
  const { metadata, status } = pod;
  const folder = podCgroupFolder(metadata.uid, status.qosClass.toLowerCase() as QosClass);
  const fields: Record<string, string> = { 'pod QoS class': status.qosClass };
  for (const { type, status: is, reason = '', message = '' } of status.conditions ?? [])
    if (type.startsWith('PodResize')) fields[`condition ${type}`] = `${is} ${reason} ${withoutNames(message, pod)}`;
  Object.assign(fields, resourceFields('pod', status));
  // kubelet derives this field from cpu.weight, which is compared, and from the request while the pod is Pending.
  delete fields['pod reported requests.cpu'];
  Object.assign(fields, fileFields('pod', folder));
  for (const container of allStatuses(pod)) Object.assign(fields, containerFields(container, folder));
  for (const { name, emptyDir } of pod.spec.volumes ?? [])
    if (emptyDir?.medium === 'Memory') fields[`volume ${name}`] = `${volumeSize(pod, name) / MiB}Mi`;
  return fields;
}

function containerFields(container: ContainerStatus, podFolder: string): Record<string, string> {
  const { name, restartCount, ready, state, containerID = '' } = container;
  const isRunning = state.running !== undefined;
  return {
    // The reason why a container waits depends on the moment.
    [`${name} state`]: isRunning ? 'running' : 'not running',
    [`${name} ready`]: String(ready),
    [`${name} restarts`]: String(restartCount),
    ...resourceFields(name, container),
    ...(isRunning && fileFields(name, containerFolder(podFolder, containerID.replace('containerd://', '')))),
  };
}

function resourceFields(what: string, { resources, allocatedResources }: Reported): Record<string, string> {
  const reported = { limits: resources?.limits, requests: resources?.requests, allocated: allocatedResources };
  return Object.fromEntries(
    Object.entries(reported).flatMap(([kind, amounts = {}]) =>
      Object.entries(amounts).map(([name, value]) => [`${what} reported ${kind}.${name}`, value]),
    ),
  );
}

function fileFields(what: string, folder: string): Record<string, string> {
  if (!existsSync(folder)) return {};
  const read = (file: string): string => readFileSync(join(folder, file), 'utf8').trim();
  const kills = /^oom_kill (\d+)$/m.exec(read('memory.events'))?.[1] ?? '';
  return {
    ...Object.fromEntries(
      cpusets.filter((file) => existsSync(join(folder, file))).map((file) => [`${what} ${file}`, read(file)]),
    ),
    ...Object.fromEntries(files.map((file) => [`${what} ${file}`, read(file)])),
    [`${what} OOM kills`]: kills,
  };
}

/** Returns the size of a memory-backed volume in bytes. */
export function volumeSize({ metadata }: Pod, name: string): number {
  const { blocks, bsize } = statfsSync(`/var/lib/kubelet/pods/${metadata.uid}/volumes/kubernetes.io~empty-dir/${name}`);
  return blocks * bsize;
}

/** Returns a message without the parts that differ between two pods of the same manifest: ids, and memory in use. */
export function withoutNames(message: string, { metadata, ...pod }: Pod): string {
  const ids = allStatuses({ metadata, ...pod }).map(({ containerID = '' }) => containerID.replace('containerd://', ''));
  return [metadata.uid, ...ids]
    .filter((id) => id !== '')
    .reduce((text, id) => text.replaceAll(id, '(id)'), message)
    .replaceAll(/(current usage) \(\d+\)/g, '$1 (N)');
}

interface Named {
  readonly metadata: { readonly name: string };
}

/** The newest state of all objects of a list, from one watch. */
export class ApiWatch<Watched extends Named> {
  readonly #objects = new Map<string, Watched>();
  readonly #waiting = new Set<() => void>();
  readonly #ending = new AbortController();
  #fault: Error | undefined;

  constructor(api: Api, path: string) {
    void this.#follow(api, path);
  }

  async #follow(api: Api, path: string): Promise<void> {
    try {
      for await (const { type, object } of api.watch<Watched>(path, this.#ending.signal)) {
        if (type === 'ERROR') throw new Error(`the watch of ${path} has failed: ${JSON.stringify(object)}`);
        if (type === 'DELETED') this.#objects.delete(object.metadata.name);
        else this.#objects.set(object.metadata.name, object);
        this.#wake();
      }
      throw new Error(`the watch of ${path} has ended`);
    } catch (error) {
      this.#fault = error instanceof Error ? error : new Error(String(error));
      this.#wake();
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  get(name: string): Watched | undefined {
    return this.#objects.get(name);
  }

  get all(): readonly Watched[] {
    return [...this.#objects.values()];
  }

  /** Resolves with true once the condition holds, or with false after the given time. */
  async until(isSo: () => boolean, milliseconds: number): Promise<boolean> {
    const deadline = AbortSignal.timeout(milliseconds);
    while (!isSo()) {
      if (this.#fault !== undefined) throw this.#fault;
      if (deadline.aborted) return false;
      await this.#change(deadline);
    }
    return true;
  }

  #change(deadline: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        deadline.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      deadline.addEventListener('abort', done);
    });
  }

  end(): void {
    this.#ending.abort();
  }
}
