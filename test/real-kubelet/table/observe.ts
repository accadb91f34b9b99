import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type QosClass, containerFolder, podCgroupFolder } from '../../support/cri/pod-cgroup.ts';
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

/** User Mode Linux has none of them. */
const cpusets = ['cpuset.cpus', 'cpuset.cpus.effective'] as const;

/** Reads a pod's fields from the API object, the cgroup files and the volumes. */
export function observePod(pod: Pod): Record<string, string> {
  const { metadata, status } = pod;
  const folder = podCgroupFolder(metadata.uid, status.qosClass.toLowerCase() as QosClass);
  const fields: Record<string, string> = { 'pod QoS class': status.qosClass };
  for (const { type, status: is, reason = '', message = '' } of status.conditions ?? [])
    if (type.startsWith('PodResize')) fields[`condition ${type}`] = `${is} ${reason} ${withoutNames(message, pod)}`;
  Object.assign(fields, resourceFields('pod', status));
  // kubelet derives it from cpu.weight, which is compared, and from the request as long as the pod is Pending.
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

/** Returns a message without what differs between two pods of the same manifest: ids, and memory in use. */
export function withoutNames(message: string, { metadata, ...pod }: Pod): string {
  const ids = allStatuses({ metadata, ...pod }).map(({ containerID = '' }) => containerID.replace('containerd://', ''));
  return [metadata.uid, ...ids]
    .filter((id) => id !== '')
    .reduce((text, id) => text.replaceAll(id, '(id)'), message)
    .replaceAll(/(current usage) \(\d+\)/g, '$1 (N)');
}
