import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { containerInfo, podInfo, resources, runtimeConfiguration } from '../seeds/messages.ts';
import { type FakePod, podOf, pods } from './node.ts';

/** A runtime's answers for the node's pods, by the last part of the method. */

const running = (id: string, name: string): Partially<Messages['ContainerStatusResponse']['status']> => ({
  id,
  metadata: { name },
  state: 1,
  created_at: 1n,
  resources: { linux: { ...resources, unified: {}, hugepage_limits: [] } },
});

function podStatus(request: Buffer): Buffer {
  const asked = decode('PodSandboxStatusRequest', request).pod_sandbox_id;
  const pod = pods.find(({ id }) => id === asked) ?? pods[0]!;
  const { config } = podInfo;
  const info = {
    ...config,
    metadata: { name: pod.name, uid: pod.uid, namespace: 'default' },
    linux: { ...config.linux, cgroup_parent: pod.cgroup },
  };
  return encode('PodSandboxStatusResponse', {
    status: { id: pod.id, state: 0, metadata: info.metadata },
    info: { info: JSON.stringify({ config: info }) },
    containers_statuses: pod.containers.map(({ id, name }) => running(id, name)!),
  });
}

function containerStatus(request: Buffer): Buffer {
  const asked = decode('ContainerStatusRequest', request).container_id;
  const pod = podOf(asked) ?? pods[0]!;
  const { id, name } = pod.containers.find((container) => container.id === asked) ?? pod.containers[0]!;
  const info = { ...containerInfo, sandboxID: pod.id, pid: 0 };
  return encode('ContainerStatusResponse', { status: running(id, name), info: { info: JSON.stringify(info) } });
}

const listed = ({ id: pod_sandbox_id, containers }: FakePod) =>
  containers.map(({ id, name }) => ({ id, pod_sandbox_id, metadata: { name }, state: 1, created_at: 1n }));

function event(): Buffer {
  const pod = pods[1]!;
  const containers_statuses = pod.containers.map(({ id, name }) => running(id, name)!);
  return encode('ContainerEventResponse', { container_id: pod.containers[0]!.id, containers_statuses });
}

const empty = Buffer.alloc(0);

const answers: Readonly<Record<string, (request: Buffer) => Buffer>> = {
  Echo: (request) => request,
  Version: () => encode('VersionResponse', { runtime_name: 'containerd', runtime_version: '2.1.0' }),
  RuntimeConfig: () => encode('RuntimeConfigResponse', { linux: { cgroup_driver: 1 } }),
  Status: () => encode('StatusResponse', { info: { config: JSON.stringify(runtimeConfiguration) } }),
  ListPodSandbox: () => encode('ListPodSandboxResponse', { items: pods.map(({ id }) => ({ id, state: 0 })) }),
  ListContainers: () => encode('ListContainersResponse', { containers: pods.flatMap(listed) }),
  PodSandboxStatus: podStatus,
  ContainerStatus: containerStatus,
  RunPodSandbox: () => encode('RunPodSandboxResponse', { pod_sandbox_id: pods[7]!.id }),
  CreateContainer: () => encode('CreateContainerResponse', { container_id: pods[7]!.containers[1]!.id }),
  GetContainerEvents: event,
};

/** Returns the answer to a request. A request that is no message gets an empty one. */
export function answerOf(path: string, request: Buffer): Buffer {
  try {
    const name = path.slice(path.lastIndexOf('/') + 1);
    return Object.hasOwn(answers, name) ? answers[name]!(request) : empty;
  } catch {
    return empty;
  }
}
