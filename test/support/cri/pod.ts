import { randomUUID } from 'node:crypto';
import { readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import type { CriClient, Resources } from './client.ts';
import {
  containerFolder,
  makePodCgroup,
  type PodCgroupFiles,
  podCgroupFolder,
  podCgroupParent,
  type QosClass,
  removePodCgroup,
  writePodCgroup,
} from './pod-cgroup.ts';

export type { QosClass } from './pod-cgroup.ts';

/** The parts of a pod as kubelet would create it. Sizes are in bytes. */
export interface PodSpec {
  readonly name: string;
  /** Default: a new uid. The pod's cgroup may already exist, as for another sandbox of the same pod. */
  readonly uid?: string;
  /** Number of sandboxes that the pod has had before. */
  readonly attempt?: number;
  readonly containers: readonly ContainerSpec[];
  readonly volumes?: readonly VolumeSpec[];
  readonly annotations?: Readonly<Record<string, string>>;
  /** Limit of the pod's own cgroup. Default: the sum of the containers. `max`: no limit. */
  readonly podMemory?: number | 'max';
  readonly podCpu?: string;
  /** CPU shares of the pod. Default: the sum of the containers. */
  readonly podShares?: number;
  readonly overhead?: Resources;
  /** The parent cgroup of the pod. Default: burstable. */
  readonly qos?: QosClass;
}

export interface ContainerSpec {
  readonly name: string;
  readonly command: readonly string[];
  readonly resources: Resources;
  /** Number of containers with this name that were created before. */
  readonly attempt?: number;
  /**
   * An init container: it runs to completion before the next one is created, and is not a container of the running pod.
   */
  readonly init?: true;
  /** Created but not started. */
  readonly starts?: false;
  /** Maps a volume name to a path in the container. */
  readonly mounts?: Readonly<Record<string, string>>;
  /** Maps a path on the node to a path in the container, for example what kubelet has bound for a subPath. */
  readonly binds?: Readonly<Record<string, string>>;
}

export interface VolumeSpec {
  readonly name: string;
  readonly size: number;
  /** Further mount options: `noswap`, `mode=1777`. */
  readonly options?: string;
}

export const KUBELET_ROOT = '/var/lib/kubelet';
const IMAGE = 'localhost/busybox:1';
const NODE_NETWORK = { network: 2, pid: 1, ipc: 0 };

/** A running pod, and the values that the kernel has for it. */
export class RunningPod {
  constructor(
    readonly client: CriClient,
    readonly uid: string,
    readonly sandboxId: string,
    readonly containers: ReadonlyMap<string, string>,
    readonly volumes: readonly VolumeSpec[],
    readonly qos: QosClass = 'burstable',
    /** The configuration with which the sandbox was created. */
    readonly config: object = {},
  ) {}

  get cgroup(): string {
    return podCgroupFolder(this.uid, this.qos);
  }

  /** Returns a container's ID by name. */
  id(name: string): string {
    const id = this.containers.get(name);
    if (id === undefined) throw new Error(`no container ${name}`);
    return id;
  }

  /** Returns the folder of a container's cgroup. */
  containerCgroup(name: string): string {
    return containerFolder(this.cgroup, this.id(name));
  }

  /** Sets limits of the pod's cgroup, as kubelet does. */
  write(files: Partial<PodCgroupFiles>): void {
    writePodCgroup(this.cgroup, files);
  }

  /** Reads a file of the pod's cgroup, or of a container's. */
  read(file: string, container?: string): string {
    const folder = container === undefined ? this.cgroup : this.containerCgroup(container);
    return readFileSync(join(folder, file), 'utf8').trim();
  }

  volumePath(name: string): string {
    return volumePath(this.uid, name);
  }

  /** Returns size and use of a volume in bytes, as reported by statfs. */
  volume(name: string): { size: number; used: number } {
    const { blocks, bfree, bsize } = statfsSync(this.volumePath(name));
    return { size: blocks * bsize, used: (blocks - bfree) * bsize };
  }

  oomKills(): number {
    return Number(/^oom_kill (\d+)$/m.exec(this.read('memory.events'))?.[1] ?? Number.NaN);
  }

  async remove(): Promise<void> {
    await this.client.call('StopPodSandbox', { pod_sandbox_id: this.sandboxId });
    await this.client.call('RemovePodSandbox', { pod_sandbox_id: this.sandboxId });
    if (this.volumes.length > 0)
      await execa(
        'umount',
        this.volumes.map(({ name }) => this.volumePath(name)),
      );
    removePodCgroup(this.cgroup);
  }
}

const volumePath = (uid: string, name: string): string =>
  `${KUBELET_ROOT}/pods/${uid}/volumes/kubernetes.io~empty-dir/${name}`;

/** Creates a pod as kubelet does: first its cgroup and its volumes, then sandbox and containers by CRI. */
export async function runPod(client: CriClient, spec: PodSpec): Promise<RunningPod> {
  const uid = spec.uid ?? randomUUID();
  const qos = spec.qos ?? 'burstable';
  makePodCgroup(podCgroupFolder(uid, qos), podFiles(spec));
  await mountVolumes(uid, spec.volumes ?? []);
  const config = {
    metadata: { name: spec.name, uid, namespace: 'default', attempt: spec.attempt ?? 0 },
    log_directory: `/tmp/pod-logs/${uid}`,
    annotations: spec.annotations ?? {},
    linux: {
      cgroup_parent: podCgroupParent(uid, qos),
      security_context: { namespace_options: NODE_NETWORK },
      overhead: spec.overhead ?? {},
      resources: { cpu_shares: podShares(spec) },
    },
  };
  const { pod_sandbox_id } = await client.call<{ pod_sandbox_id: string }>('RunPodSandbox', { config });
  const containers = new Map<string, string>();
  for (const container of spec.containers) {
    const id = await createContainer(client, { sandboxId: pod_sandbox_id, uid, config }, container);
    if (container.starts !== false) await client.call('StartContainer', { container_id: id });
    if (container.init) await ended(client, id, container.name);
    else containers.set(container.name, id);
  }
  return new RunningPod(client, uid, pod_sandbox_id, containers, spec.volumes ?? [], spec.qos, config);
}

const EXITED = 2;
const END_LIMIT_MS = 120_000;

/** Waits for an init container to complete. Polls, because containerd 1.6 has no events for it. */
async function ended(client: CriClient, id: string, name: string): Promise<void> {
  for (const limit = Date.now() + END_LIMIT_MS; Date.now() < limit; ) {
    const { state, exit_code } = await client.containerStatus(id);
    if (state !== EXITED) continue;
    if (exit_code === 0) return;
    throw new Error(`init container ${name} exited with code ${exit_code}`);
  }
  throw new Error(`init container ${name} has not ended within ${END_LIMIT_MS} ms`);
}

/** Creates a container without starting it. Returns its ID. */
export async function createContainer(
  client: CriClient,
  pod: { sandboxId: string; uid: string; config: object },
  { name, attempt = 0, command, resources, mounts = {}, binds = {} }: ContainerSpec,
): Promise<string> {
  const { container_id } = await client.call<{ container_id: string }>('CreateContainer', {
    pod_sandbox_id: pod.sandboxId,
    sandbox_config: pod.config,
    config: {
      metadata: { name, attempt },
      image: { image: IMAGE },
      command,
      log_path: `${name}.log`,
      mounts: [
        ...Object.entries(mounts).map(([volume, path]) => [volumePath(pod.uid, volume), path]),
        ...Object.entries(binds),
      ].map(([host_path, container_path]) => ({ host_path, container_path })),
      linux: { resources, security_context: { namespace_options: NODE_NETWORK } },
    },
  });
  return container_id;
}

/** The values that kubelet writes to the pod's cgroup. */
function podFiles(spec: PodSpec): PodCgroupFiles {
  const memory = spec.podMemory ?? sum(spec, 'memory_limit_in_bytes') + (spec.overhead?.memory_limit_in_bytes ?? 0);
  const quota = sum(spec, 'cpu_quota') + (spec.overhead?.cpu_quota ?? 0);
  return {
    'memory.max': memory === Infinity ? 'max' : String(memory),
    'cpu.max': spec.podCpu ?? `${Number.isFinite(quota) ? quota : 'max'} 100000`,
    // kubelet's own formula for the cgroups of its pods, up to 1.36.
    'cpu.weight': String(1 + Math.floor(((podShares(spec) - 2) * 9999) / 262142)),
  };
}

/** Infinity if one container has no limit. */
const sum = (spec: PodSpec, field: 'memory_limit_in_bytes' | 'cpu_quota'): number => {
  const total = spec.containers.reduce((all, { resources }) => all + (resources[field] ?? Infinity), 0);
  return total;
};

const podShares = (spec: PodSpec): number =>
  spec.podShares ??
  Math.max(
    2,
    spec.containers.reduce((all, { resources }) => all + (resources.cpu_shares ?? 0), 0),
  );

/** Mounts all volumes with one process, because there may be many. */
async function mountVolumes(uid: string, volumes: readonly VolumeSpec[]): Promise<void> {
  const places = volumes.flatMap(({ name, size, options }) => [
    [`size=${size}`, ...(options === undefined ? [] : [options])].join(','),
    volumePath(uid, name),
  ]);
  const script = 'while [ $# -gt 0 ]; do mkdir -p "$2" && mount -t tmpfs -o "$1" tmpfs "$2" || exit; shift 2; done';
  if (places.length > 0) await execa('sh', ['-c', script, 'sh', ...places]);
}
