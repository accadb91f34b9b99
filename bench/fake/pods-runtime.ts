import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { weightOfShares } from '../../src/cgroups/values/conversions.ts';
import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import type { LinuxContainerResources, Messages, Partially } from '../../src/runtime/messages.ts';
import type { StoredContainer } from '../containerd/stored-node.ts';
import { amountsAtStart, bytesOf, cgroupOf, type FakePod, podShares, quotaOf, sharesOf } from './pods.ts';

/**
 * Answers one call: maps the bytes of the request to those of the response. Throws or rejects if the pod or container
 * does not exist.
 */
export type Answer = (request: Buffer) => Buffer | Promise<Buffer>;

/** Waits for a free slot, and then for the duration of an update in a real runtime. */
export type Pace = () => Promise<void>;

const RUNNING = 1;
const PERIOD = 100_000;

type Stored = Partially<LinuxContainerResources>;

/**
 * The methods of a runtime with these pods, whose containers all run. It stores requested values, and writes them to
 * the cgroups below `root` like runc. Each answer is built and encoded for each call, and verbose ones have as much
 * JSON as containerd's.
 * @param pace of updates of containers; without it, they take as long as this process needs
 */
export function podsRuntime(root: string, pods: readonly FakePod[], pace?: Pace): ReadonlyMap<string, Answer> {
  const containers = pods.flatMap((pod) => pod.containers);
  const podById = new Map(pods.map((pod) => [pod.pod.id, pod]));
  const byId = new Map(containers.map((container) => [container.id, container]));
  const stored = new Map<string, Stored>();
  for (const pod of pods) pod.containers.forEach(({ id }, index) => stored.set(id, storedAtStart(index)));

  const podStatus = (of: FakePod): Partially<Messages['PodSandboxStatusResponse']> => ({
    status: { id: of.pod.id, state: 0, metadata: metadataOf(of) },
    info: { info: JSON.stringify({ config: configOf(of), runtimeSpec, runtimeType: 'io.containerd.runc.v2' }) },
  });
  const containerStatus = ({ id, name, pod }: StoredContainer): Partially<Messages['ContainerStatusResponse']> => ({
    status: { id, metadata: { name }, state: RUNNING, resources: { linux: stored.get(id) ?? {} } },
    // The format is containerd's. The pid is that of this process. Its cgroup is not one of the fake ones, so the shim
    // uses the rule of the cgroup driver.
    info: {
      info: JSON.stringify({ sandboxID: pod.id, pid: process.pid, config: { metadata: { name } }, runtimeSpec }),
    },
  });
  const listed = ({ id, name, pod }: StoredContainer) => ({
    id,
    pod_sandbox_id: pod.id,
    metadata: { name },
    state: RUNNING,
  });

  return new Map<string, Answer>([
    ['Version', () => Buffer.alloc(0)],
    ['ListPodSandbox', () => encode('ListPodSandboxResponse', { items: pods.map(({ pod }) => ({ id: pod.id })) })],
    [
      'PodSandboxStatus',
      (request) => {
        const { pod_sandbox_id } = decode('PodSandboxStatusRequest', request);
        return encode('PodSandboxStatusResponse', podStatus(known(podById, pod_sandbox_id)));
      },
    ],
    [
      'ListContainers',
      (request) => {
        const id = decode('ListContainersRequest', request).filter?.pod_sandbox_id ?? '';
        const wanted = id === '' ? containers : known(podById, id).containers;
        return encode('ListContainersResponse', { containers: wanted.map(listed) });
      },
    ],
    [
      'ContainerStatus',
      (request) => {
        const { container_id } = decode('ContainerStatusRequest', request);
        return encode('ContainerStatusResponse', containerStatus(known(byId, container_id)));
      },
    ],
    [
      'UpdateContainerResources',
      (request) => {
        const { container_id, linux } = decode('UpdateContainerResourcesRequest', request);
        const given = linux === null ? {} : givenOf(linux);
        const cgroup = cgroupOf(known(byId, container_id));
        const update = (): Buffer => {
          writeGiven(join(root, cgroup), given);
          stored.set(container_id, { ...stored.get(container_id), ...given });
          return encode('UpdateContainerResourcesResponse', {});
        };
        return pace === undefined ? update() : pace().then(update);
      },
    ],
  ]);
}

function known<Value>(map: ReadonlyMap<string, Value>, id: string): Value {
  const value = map.get(id);
  if (value === undefined) throw new Error(`no object with the ID ${id}`);
  return value;
}

function storedAtStart(index: number): Stored {
  const { memoryMi, milliCpu } = amountsAtStart(index);
  return {
    cpu_period: BigInt(PERIOD),
    cpu_quota: BigInt(quotaOf(milliCpu)),
    cpu_shares: BigInt(sharesOf(milliCpu)),
    memory_limit_in_bytes: BigInt(bytesOf(memoryMi)),
  };
}

/** Returns the requested values. A value of 0 leaves the stored value unchanged. */
function givenOf({ cpu_period, cpu_quota, cpu_shares, memory_limit_in_bytes }: LinuxContainerResources): Stored {
  const all = { cpu_period, cpu_quota, cpu_shares, memory_limit_in_bytes };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== 0n));
}

function writeGiven(folder: string, { cpu_period, cpu_quota, cpu_shares, memory_limit_in_bytes }: Stored): void {
  const write = (file: string, value: string): void => writeFileSync(join(folder, file), `${value}\n`);
  const limit = (value: bigint): string => (value < 0n ? 'max' : String(value));
  if (memory_limit_in_bytes !== undefined) write('memory.max', limit(memory_limit_in_bytes));
  if (cpu_quota !== undefined) write('cpu.max', `${limit(cpu_quota)} ${cpu_period ?? PERIOD}`);
  if (cpu_shares !== undefined) write('cpu.weight', String(weightOfShares(cpuShares(Number(cpu_shares)), 'new')));
}

const metadataOf = ({ pod: { name, uid, namespace } }: FakePod) => ({ name, uid, namespace });

const configOf = (of: FakePod) => ({
  metadata: metadataOf(of),
  annotations: { 'kubernetes.io/config.seen': '2026-01-01T00:00:00.000000000Z', 'kubernetes.io/config.source': 'api' },
  linux: {
    cgroup_parent: of.pod.cgroupParent,
    resources: { cpu_shares: podShares(of.containers.map((_, index) => amountsAtStart(index))) },
  },
});

/** As long as the OCI specification of an ordinary container, which containerd includes in each verbose answer. */
const runtimeSpec = {
  ociVersion: '1.2.1',
  process: { args: ['/pause'], env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'], cwd: '/' },
  mounts: Array.from({ length: 16 }, (_, index) => ({
    destination: `/run/place-${index}`,
    type: 'bind',
    source: `/var/lib/kubelet/pods/place-${index}`,
    options: ['rbind', 'rprivate', 'ro', 'nosuid', 'nodev', 'noexec'],
  })),
  linux: { maskedPaths: Array.from({ length: 12 }, (_, index) => `/proc/masked-${index}`), namespaces: [] },
};
