import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { execa } from 'execa';
import protobuf from 'protobufjs';
import { MiB } from '../../../../src/core/quantities/sizes.ts';
import type { Resources } from '../../../support/cri/client.ts';
import { CriClient } from '../../../support/cri/client.ts';
import type { RunningPod } from '../../../support/cri/pod.ts';
import { runPod } from '../../../support/cri/pod.ts';
import { ShimProcess } from '../../../support/cri/shim.ts';
import { ResizeClient } from '../../../support/resize-api/client.ts';

/** An invalid request. Either the shim rejects it, or the runtime answers it and the shim forwards that answer. */
export interface BadCase {
  readonly name: string;
  readonly call: 'UpdateContainerResources' | 'UpdatePodSandboxResources' | 'ResizePod';
  /** A Buffer is sent as it is. */
  readonly request: (node: BadInputNode) => object | Buffer;
  readonly answer: Refused | PassedOn;
  /** A runtime that implements the call (containerd 2.3 and later: UpdatePodSandboxResources) gives the answer. */
  readonly isForwardedIfImplemented?: boolean;
}

/** The shim's own answer. */
export interface Refused {
  readonly by: 'shim';
  readonly code: number;
  readonly reason: string;
  /** Texts that the message must contain: the field and the value. */
  readonly says: readonly string[];
}

/** The runtime's answer, equal to its answer without a shim. Some requests succeed. */
export interface PassedOn {
  readonly by: 'runtime';
  /** The call that the shim makes to the runtime, if it differs from the received call. */
  readonly instead?: { readonly method: string; readonly request: (node: BadInputNode) => object };
}

export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const FAILED_PRECONDITION = 9;

export const invalid = (...says: string[]): Refused => refused(INVALID_ARGUMENT, 'INVALID_VALUE', ...says);
export const refused = (code: number, reason: string, ...says: string[]): Refused => ({
  by: 'shim',
  code,
  reason,
  says,
});
export const passedOn: PassedOn = { by: 'runtime' };

/** The limits of int64, and a number that JavaScript cannot represent exactly, as strings. */
export const INT64 = { least: '-9223372036854775808', most: '9223372036854775807', inexact: '9007199254740993' };

/**
 * Requests that no protobuf client would send, as bytes of the wire format. Field numbers are those of CRI and of the
 * resize API.
 */

const delimited = (field: number): number => field * 8 + 2;

/** A request with this many entries in one of its maps. Each entry has its own key and no value. */
export function withEntries(count: number, id: string, path: readonly number[]): Buffer {
  const map = protobuf.Writer.create();
  const [field = 0, ...outer] = [...path].reverse();
  for (let index = 0; index < count; index += 1)
    map.uint32(delimited(field)).fork().uint32(delimited(1)).string(`key${index}`).ldelim();
  const inner = outer.reduce(
    (bytes, number) => protobuf.Writer.create().uint32(delimited(number)).bytes(bytes).finish(),
    map.finish(),
  );
  return Buffer.concat([protobuf.Writer.create().uint32(delimited(1)).string(id).finish(), inner]);
}

/** A request that ends in the middle of a field. */
export const truncated = (id: string): Buffer =>
  Buffer.from(protobuf.Writer.create().uint32(delimited(1)).string(id).uint32(delimited(2)).uint32(200).finish());

/** Nested groups that are never closed. */
export const nested = (): Buffer => Buffer.alloc(100_000, 0x0b);

export const NO_PROTOBUF = Buffer.from('{"container_id": "not protobuf at all"}');

const BACKEND = 'unix:///run/containerd/containerd.sock';
const RESIZE = '/run/cri-resize-shim/bad-input.sock';
const SLEEP = ['sleep', '1000000'];
const VOLUME = 'cache';

export const limits = (mebibytes: number, quota = 10_000): Resources => ({
  memory_limit_in_bytes: mebibytes * MiB,
  cpu_quota: quota,
  cpu_period: 100_000,
  cpu_shares: 102,
});

/** The running containers with their initial limits. */
export const RUNNING: Readonly<Record<string, Resources>> = { a: limits(64), held: limits(96), paused: limits(64) };

/** The pod limit in mebibytes: the sum of the running, the ended and the never started containers. */
const POD_MIB = 64 + 96 + 64 + 48 + 48;

/** The files of a cgroup that the kernel enforces, without those that this kernel does not have. */
const FILES = [
  ...['memory.max', 'memory.high', 'memory.low', 'memory.min', 'memory.swap.max', 'memory.oom.group'],
  ...['cpu.max', 'cpu.weight', 'cpuset.cpus', 'cpuset.mems', 'pids.max', 'cgroup.freeze', 'cgroup.procs'],
];

/** A node with a shim, and pods in every state that a request may meet. */
export interface BadInputNode {
  readonly shim: ShimProcess;
  readonly cri: CriClient;
  readonly direct: CriClient;
  readonly api: ResizeClient;
  /**
   * Has the containers of {@link RUNNING}. `ended` has ended, `made` was never started, and `init` ran to completion
   * before all others.
   */
  readonly pod: RunningPod;
  /** Whether the runtime implements UpdatePodSandboxResources. */
  readonly implementsPodUpdate: boolean;
  /** Sandboxes without their own cgroup. */
  readonly bareSandboxes: readonly string[];
  /** A first character that the IDs of several sandboxes share, and one that those of several containers share. */
  readonly ambiguous: { readonly pod: string; readonly container: string };
  /** Everything that a request could have changed, by name. */
  snapshot(): Promise<Readonly<Record<string, unknown>>>;
  /** Restores the limits of the running containers and the pod without the shim, after the runtime changed them. */
  reset(): Promise<void>;
  stop(): Promise<number | null>;
}

export async function startNode(): Promise<BadInputNode> {
  const state = mkdtempSync(join(tmpdir(), 'state-'));
  const args = ['--resize-listen', `unix://${RESIZE}`, '--state-folder', state];
  const shim = await ShimProcess.start({ listen: 'unix:///run/cri-resize-shim/bad-input-cri.sock', args });
  const cri = new CriClient(shim.address);
  const direct = new CriClient(BACKEND);
  const api = new ResizeClient(RESIZE);
  const pod = await makePod(cri);
  const sandboxes = [pod.sandboxId];
  while (sandboxes.length < 2 || shared(sandboxes) === undefined)
    sandboxes.push(await runSandbox(cri, sandboxes.length));
  const containers = [...pod.containers.values()];
  const extra: string[] = [];
  while (shared(containers) === undefined) {
    // Creates the containers in another sandbox, because this pod's limit would have to include them.
    extra.push(await makeContainer(cri, sandboxes[1] ?? '', `more${extra.length}`));
    containers.push(...extra.slice(-1));
  }
  return {
    shim,
    cri,
    direct,
    api,
    pod,
    implementsPodUpdate: await implementsPodUpdate(direct),
    bareSandboxes: sandboxes.slice(1),
    ambiguous: { pod: shared(sandboxes) ?? '', container: shared(containers) ?? '' },
    async snapshot() {
      const stored = [...pod.containers].map(
        async ([name, id]) => [`stored ${name}`, (await direct.containerStatus(id)).resources] as const,
      );
      return {
        ...kernelOf(pod),
        ...Object.fromEntries(await Promise.all(stored)),
        volume: pod.volume(VOLUME),
        'state folder': readdirSync(state),
        'OOM kills': pod.oomKills(),
      };
    },
    async reset() {
      for (const [name, resources] of Object.entries(RUNNING)) await direct.updateContainer(pod.id(name), resources);
    },
    async stop() {
      for (const client of [cri, direct, api]) client.close();
      return shim.stop();
    },
  };
}

/** Up to 2.1, containerd answers UNIMPLEMENTED, and 2.2 UNKNOWN; an implementation looks for the pod. */
async function implementsPodUpdate(direct: CriClient): Promise<boolean> {
  const answer = await direct
    .call('UpdatePodSandboxResources', { pod_sandbox_id: 'none' })
    .catch((error: unknown) => error);
  return answer instanceof Error && 'code' in answer && answer.code === status.NOT_FOUND;
}

/** Stops and removes all pods that {@link startNode} has created. */
export async function removePods({ direct, pod, bareSandboxes }: BadInputNode): Promise<void> {
  await execa('ctr', ['-n', 'k8s.io', 'tasks', 'resume', pod.id('paused')]);
  for (const id of bareSandboxes) {
    await direct.call('StopPodSandbox', { pod_sandbox_id: id });
    await direct.call('RemovePodSandbox', { pod_sandbox_id: id });
  }
  await pod.remove();
}

async function makePod(cri: CriClient): Promise<RunningPod> {
  const pod = await runPod(cri, {
    name: 'web',
    podMemory: POD_MIB * MiB,
    podCpu: '50000 100000',
    containers: [
      { name: 'init', command: ['true'], resources: limits(32), init: true },
      ...Object.entries(RUNNING).map(([name, resources]) => ({
        name,
        command: SLEEP,
        resources,
        mounts: { [VOLUME]: '/cache' },
      })),
      { name: 'ended', command: SLEEP, resources: limits(48) },
      { name: 'made', command: SLEEP, resources: limits(48), starts: false as const },
    ],
    volumes: [{ name: VOLUME, size: POD_MIB * MiB }],
  });
  await cri.call('StopContainer', { container_id: pod.id('ended'), timeout: 0 });
  await cri.exec(pod.id('held'), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', 'count=40');
  await cri.exec(pod.id('a'), 'dd', 'if=/dev/zero', 'of=/cache/stored', 'bs=1M', 'count=8');
  await execa('ctr', ['-n', 'k8s.io', 'tasks', 'pause', pod.id('paused')]);
  return pod;
}

function kernelOf(pod: RunningPod): Record<string, string> {
  const cgroups = [undefined, ...Object.keys(RUNNING)];
  const read = (file: string, name: string | undefined): [string, string][] => {
    const folder = name === undefined ? pod.cgroup : join(pod.cgroup, pod.id(name));
    return existsSync(join(folder, file)) ? [[`${name ?? 'pod'} ${file}`, pod.read(file, name)]] : [];
  };
  return Object.fromEntries(cgroups.flatMap((name) => FILES.flatMap((file) => read(file, name))));
}

/** Runs a sandbox in the node's network namespace, without a cgroup parent. */
async function runSandbox(cri: CriClient, index: number): Promise<string> {
  const metadata = { name: `loner${index}`, uid: randomUUID(), namespace: 'default', attempt: 0 };
  const config = { metadata, linux: { security_context: { namespace_options: { network: 2 } } } };
  const { pod_sandbox_id } = await cri.call<{ pod_sandbox_id: string }>('RunPodSandbox', { config });
  return pod_sandbox_id;
}

/** Creates a container without starting it, and returns its ID. */
export async function makeContainer(cri: CriClient, sandboxId: string, name: string): Promise<string> {
  const { container_id } = await cri.call<{ container_id: string }>('CreateContainer', {
    pod_sandbox_id: sandboxId,
    sandbox_config: { metadata: { name: 'web', uid: randomUUID(), namespace: 'default', attempt: 0 } },
    config: {
      metadata: { name, attempt: 0 },
      image: { image: 'localhost/busybox:1' },
      command: SLEEP,
      linux: { resources: limits(32), security_context: { namespace_options: { network: 2 } } },
    },
  });
  return container_id;
}

/** Returns a first character that several IDs share. */
const shared = (ids: readonly string[]): string | undefined =>
  ids.map((id) => id.slice(0, 1)).find((first, index, all) => all.indexOf(first) !== index);
