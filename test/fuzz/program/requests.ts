import { MiB } from '../../../src/core/quantities/sizes.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { encode as encodeApi } from '../../../src/server/api/messages.ts';
import { mutateMessage } from '../mutations/message.ts';
import { hostileText } from '../mutations/values.ts';
import type { Random } from '../random.ts';
import { podConfig, resizeRequests, resources } from '../seeds/messages.ts';
import { pods } from './node.ts';

/** A method and the bytes of its request. */
export interface Request {
  readonly path: string;
  readonly body: Buffer;
  /** The stream stays open until the client closes it. */
  readonly isWatch?: true;
}

const container = (random: Random): string =>
  random.chance(10) ? hostileText(random) : random.pick(random.pick(pods).containers).id;
const sandbox = (random: Random): string => (random.chance(10) ? hostileText(random) : random.pick(pods).id);
const isVerbose = (random: Random): boolean => random.chance(2);

const linux = (random: Random) => ({
  ...resources,
  cpu_quota: BigInt(random.pick([-1, 0, 1000, 25_000, 50_000])),
  memory_limit_in_bytes: BigInt(random.pick([-1, 0, 64, 128, 256]) * MiB),
  memory_swap_limit_in_bytes: 0n,
  hugepage_limits: [],
  unified: random.chance(4) ? { 'memory.high': String(random.below(2 ** 30)) } : {},
});

const runtime: Readonly<Record<string, (random: Random) => Buffer>> = {
  UpdateContainerResources: (random) =>
    encode('UpdateContainerResourcesRequest', { container_id: container(random), linux: linux(random) }),
  UpdatePodSandboxResources: (random) =>
    encode('UpdatePodSandboxResourcesRequest', {
      pod_sandbox_id: sandbox(random),
      overhead: random.chance(3) ? linux(random) : null,
      resources: linux(random),
    }),
  RuntimeConfig: () => Buffer.alloc(0),
  ContainerStatus: (random) =>
    encode('ContainerStatusRequest', { container_id: container(random), verbose: isVerbose(random) }),
  PodSandboxStatus: (random) =>
    encode('PodSandboxStatusRequest', { pod_sandbox_id: sandbox(random), verbose: isVerbose(random) }),
  Status: (random) => encode('StatusRequest', { verbose: isVerbose(random) }),
  PodSandboxStats: (random) => encode('PodSandboxStatsRequest', { pod_sandbox_id: sandbox(random) }),
  ListContainerStats: (random) => encode('ListContainerStatsRequest', { filter: { pod_sandbox_id: sandbox(random) } }),
  RunPodSandbox: () => encode('RunPodSandboxRequest', { config: podConfig }),
  RemovePodSandbox: (random) => encode('RemovePodSandboxRequest', { pod_sandbox_id: sandbox(random) }),
  CreateContainer: (random) =>
    encode('CreateContainerRequest', {
      pod_sandbox_id: sandbox(random),
      config: { metadata: { name: 'web' }, linux: { resources: linux(random) } },
    }),
  RemoveContainer: (random) => encode('RemoveContainerRequest', { container_id: container(random) }),
  GetContainerEvents: () => Buffer.alloc(0),
  ListContainers: () => Buffer.alloc(0),
  NoSuchMethod: (random) => random.bytes(random.below(100)),
};

const amount = (random: Random): string => random.pick(['', '64Mi', '128Mi', '256Mi', 'max', '500m', '0', '1Ki']);

const reference = (random: Random): object => {
  const pod = random.pick(pods);
  return random.pick([
    { sandbox_id: sandbox(random) },
    { uid: pod.uid },
    { name: { namespace: 'default', name: pod.name } },
    { name: { namespace: hostileText(random), name: hostileText(random) } },
  ]);
};

const resizePod = (random: Random): Buffer => {
  const amounts = { limits: { memory: amount(random), cpu: random.pick(['', '100m', '1', 'max']) } };
  return encodeApi('ResizePodRequest', {
    ...(random.chance(4) && random.pick(resizeRequests)),
    pod: reference(random),
    containers: { [random.chance(8) ? hostileText(random) : 'web']: amounts },
    ...(random.chance(2) && { dry_run: true }),
  });
};

const api: Readonly<Record<string, (random: Random) => Buffer>> = {
  ResizePod: resizePod,
  GetPod: (random) => encodeApi('GetPodRequest', { pod: reference(random) }),
  ListPods: () => Buffer.alloc(0),
  WatchResizes: (random) => encodeApi('WatchResizesRequest', random.chance(2) ? {} : { pod: reference(random) }),
  GetResize: (random) => encodeApi('GetResizeRequest', { id: hostileText(random) }),
  CancelResize: (random) => encodeApi('CancelResizeRequest', { id: hostileText(random) }),
  NoSuchMethod: (random) => random.bytes(random.below(100)),
};

const runtimeMethods = Object.keys(runtime);
const apiMethods = Object.keys(api);

/** Returns a request for the CRI socket. One message in three is valid. */
export function criRequest(random: Random): Request {
  if (random.chance(8)) return { path: '/s/Echo', body: random.bytes(random.below(200)) };
  const method = random.pick(runtimeMethods);
  return { path: `/runtime.v1.RuntimeService/${method}`, body: bodyOf(runtime[method]!(random), random) };
}

/** Returns a request for the socket of the resize API. */
export function apiRequest(random: Random): Request {
  if (random.chance(10)) return { path: '/grpc.health.v1.Health/Check', body: random.bytes(random.below(8)) };
  const method = random.pick(apiMethods);
  const body = bodyOf(api[method]!(random), random);
  const path = `/criresize.v1alpha1.ResizeService/${method}`;
  return { path, body, ...(method === 'WatchResizes' && { isWatch: true }) };
}

const bodyOf = (valid: Buffer, random: Random): Buffer => (random.chance(3) ? valid : mutateMessage(valid, random));
