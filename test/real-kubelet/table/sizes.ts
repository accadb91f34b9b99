import { readFileSync, statfsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { containerFolder, podCgroupFolder, type QosClass } from '../../support/cri/pod-cgroup.ts';
import type { PodState } from '../../watch/limits.ts';
import { type WatchedPod, WatcherProcess } from '../../watch/watcher.ts';
import type { Pod } from './pod.ts';
import { type SizeChange, statusOf } from './row.ts';

/** Returns the change as the spec of a pod has it. */
export function specOf({ memory = {}, cpu = {}, volumes = {} }: SizeChange): object {
  const names = [...new Set([...Object.keys(memory), ...Object.keys(cpu)])];
  const limits = (name: string): object => ({
    ...(memory[name] !== undefined && { memory: memory[name] }),
    ...(cpu[name] !== undefined && { cpu: cpu[name] }),
  });
  return {
    containers: names.map((name) => ({ name, resources: { limits: limits(name) } })),
    volumes: Object.entries(volumes).map(([name, sizeLimit]) => ({ name, emptyDir: { sizeLimit } })),
  };
}

/** Returns the change as resizectl reads it. */
export const argumentsOf = ({ memory = {}, cpu = {}, volumes = {} }: SizeChange): readonly string[] => [
  ...Object.entries(memory).map(([name, value]) => `${name}.memory=${value}`),
  ...Object.entries(cpu).map(([name, value]) => `${name}.cpu=${value}`),
  ...Object.entries(volumes).map(([name, value]) => `volume.${name}=${value}`),
];

/** The places of a running pod on the node. */
export class PodPlaces implements WatchedPod {
  readonly containers: ReadonlyMap<string, unknown>;
  readonly volumes: readonly { readonly name: string }[];

  constructor(private readonly pod: Pod) {
    this.containers = new Map(pod.spec.containers.map(({ name }) => [name, name]));
    this.volumes = (pod.spec.volumes ?? []).filter(({ emptyDir }) => emptyDir?.medium === 'Memory');
  }

  get cgroup(): string {
    const { metadata, status } = this.pod;
    return podCgroupFolder(metadata.uid, status.qosClass.toLowerCase() as QosClass);
  }

  containerCgroup(name: string): string {
    const id = statusOf(this.pod, name)?.containerID ?? '';
    return containerFolder(this.cgroup, id.replace('containerd://', ''));
  }

  volumePath(name: string): string {
    return `/var/lib/kubelet/pods/${this.pod.metadata.uid}/volumes/kubernetes.io~empty-dir/${name}`;
  }

  /** Returns a value as text: `pod memory.max`, `app memory.max`, `volume cache`. */
  read(what: string): string {
    const [whose = '', name = ''] = what.split(' ');
    if (whose === 'volume') return sizeAt(this.volumePath(name));
    const folder = whose === 'pod' ? this.cgroup : this.containerCgroup(whose);
    return shown(what, readFileSync(join(folder, name), 'utf8').trim());
  }

  /** Returns the folder of a container's first process in /proc. */
  #process(container: string): string {
    const [pid = ''] = readFileSync(join(this.containerCgroup(container), 'cgroup.procs'), 'utf8').split('\n');
    return join('/proc', pid);
  }

  /** Returns the folder of a volume as a container sees it. */
  #inside(container: string, volume: string): string {
    return join(this.#process(container), 'root', volume);
  }

  /** Removes what {@link store} has stored. */
  async empty(container: string, volume: string): Promise<void> {
    await rm(join(this.#inside(container, volume), 'stored'));
  }

  /** Whether all values of a change are in force. */
  has({ memory = {}, cpu = {}, volumes = {} }: SizeChange): boolean {
    return [
      ...Object.entries(memory).map(([name, value]) => this.read(`${name} memory.max`) === value),
      ...Object.entries(cpu).map(([name, value]) => this.read(`${name} cpu.max`) === value),
      ...Object.entries(volumes).map(([name, value]) => this.read(`volume ${name}`) === value),
    ].every(Boolean);
  }

  /**
   * Stores zeros in a file of a volume, as a process of the container. Returns how much the process could write, in
   * whole MiB.
   */
  async store(container: string, volume: string, mebibytes: number): Promise<string> {
    const file = join(this.#inside(container, volume), 'stored');
    const script = 'echo $$ >"$0/cgroup.procs" && exec dd if=/dev/zero "of=$1" bs=1M "count=$2" iflag=fullblock';
    const args = ['-c', script, this.containerCgroup(container), file, String(mebibytes)];
    const { stderr } = await execa('sh', args, { reject: false, env: { LC_ALL: 'C' } });
    const written = /(\d+) bytes/.exec(stderr)?.[1] ?? '0';
    return `${Math.round(Number(written) / MiB)}Mi${stderr.includes('No space left') ? ', no space left' : ''}`;
  }

  /** Returns what the container itself sees of its volumes, and the files that it has had open from its start. */
  seenInside(container: string): Readonly<Record<string, string>> {
    const sizes = this.volumes.map(({ name }) => [`${container} sees ${name}`, sizeAt(this.#inside(container, name))]);
    return {
      ...(Object.fromEntries(sizes) as Readonly<Record<string, string>>),
      [`${container} open file`]: readFileSync(join(this.#process(container), 'fd/3'), 'utf8').trim(),
    };
  }
}

/** Returns the conditions of a pod about resizes, with their reasons. */
export const resizeConditions = ({ status: { conditions = [] } }: Pod): readonly string[] =>
  conditions
    .filter(({ type }) => type.startsWith('PodResize'))
    .map(({ type, reason = '' }) => `${type} ${reason}`.trim());

/**
 * Reads limits and volumes of a pod, also as its containers see them.
 * @param events reasons of all events of the pod
 */
export function observeSizes(pod: Pod, events: readonly string[]): Readonly<Record<string, string>> {
  const places = new PodPlaces(pod);
  const names = [...places.containers.keys()];
  const values = [
    ...['pod', ...names].flatMap((whose) => [`${whose} memory.max`, `${whose} cpu.max`]),
    ...places.volumes.map(({ name }) => `volume ${name}`),
  ].map((what) => [what, places.read(what)] as const);
  const conditions = resizeConditions(pod);
  // kubelet sometimes reports a resize as completed that it has just begun: a race that a comment in its syncPod names.
  const isSure = (reason: string): boolean => conditions.length === 0 || reason !== 'ResizeCompleted';
  const about = events.filter((reason) => /Resize|VolumeSize/.test(reason) && isSure(reason));
  return {
    events: [...new Set(about)].toSorted().join(', '),
    conditions: conditions.join(', '),
    ...Object.fromEntries(values),
    ...Object.fromEntries(names.map((name) => [`${name} restarts`, String(statusOf(pod, name)?.restartCount)])),
    ...Object.fromEntries(names.flatMap((name) => Object.entries(places.seenInside(name)))),
  };
}

function sizeAt(folder: string): string {
  const { blocks, bsize } = statfsSync(folder);
  return `${(blocks * bsize) / MiB}Mi`;
}

/** Returns sizes in MiB, and quotas of the usual period in thousandths of a CPU. */
function shown(what: string, text: string): string {
  if (/memory\.max$/.test(what) && /^\d+$/.test(text)) return `${Number(text) / MiB}Mi`;
  return text.replace(/^(\d+)00 100000$/, '$1m');
}

const shownState = (what: string, text: string): string =>
  what.startsWith('volume ') ? `${Number(text) / MiB}Mi` : shown(what, text);

/** Watches limits and volumes of a pod. Returns a function that returns their changes in order. */
export async function watchOrder(places: PodPlaces): Promise<() => Promise<string>> {
  const process = new WatcherProcess();
  const watcher = await process.watch(places);
  return async () => {
    const { states } = await watcher.report();
    await process.end();
    return orderOf(states);
  };
}

/**
 * Returns the changes between states, in order: `pod memory 256Mi -> 384Mi; cache 64Mi -> 192Mi`. The order of changes
 * between two readings is not known: `with` joins them.
 */
export function orderOf(states: readonly PodState[]): string {
  return states
    .slice(1)
    .map((state, index) => {
      const before = states[index] ?? {};
      const changed = Object.keys(state).filter((what) => state[what] !== before[what]);
      return changed.map(
        (what) => `${nameOf(what)} ${shownState(what, before[what] ?? '')} -> ${shownState(what, state[what] ?? '')}`,
      );
    })
    .map((changes) => changes.join(WITH))
    .join('; ');
}

const WITH = ' with ';

/** Returns an order in which changes of unknown order have that of another one. */
export function alignedTo(reference: string, order: string): string {
  const known = reference.split('; ');
  return order
    .split('; ')
    .flatMap((group) => group.split(WITH).toSorted((one, other) => known.indexOf(one) - known.indexOf(other)))
    .join('; ');
}

const nameOf = (what: string): string => what.replace(/^volume /, '').replace(/\.max$/, '');
