import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import { CgroupTree } from '../../src/cgroups/tree.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import type { Counters, FailOpenReason, LogFields } from '../../src/core/observe/interfaces.ts';
import type { PodEntry } from '../../src/kubelet/checkpoint.ts';
import { ManagerFiles } from '../../src/kubelet/resource-managers.ts';
import { Backend, runtimePath } from '../../src/runtime/backend.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import { ContainerState, type Messages, type Partially } from '../../src/runtime/messages.ts';
import { connectDecreaseReclaimer, createNode } from '../../src/sandbox/create-node.ts';
import type { DecreaseReclaimer } from '../../src/sandbox/foresight/decrease-reclaimer.ts';
import { PodJournal } from '../../src/sandbox/journal/pod-journal.ts';
import { Journal } from '../../src/sandbox/journal/store.ts';
import type { Node } from '../../src/sandbox/node.ts';
import { idsInCgroup } from '../../src/sandbox/pods/container-cgroups.ts';
import type { Amounts } from '../../src/sandbox/pods/declared-pod.ts';
import type { PodSpec } from '../../src/sandbox/pods/pod-spec.ts';
import { Registry } from '../../src/sandbox/pods/registry.ts';
import { MemoryVolumes } from '../../src/tmpfs/memory-volumes.ts';
import { timerlessClock } from './fake-clock.ts';

/**
 * A runtime and a cgroup tree for situations that real ones do not create on demand: a runtime that does not answer,
 * describes pods incorrectly or fails half-way, and missing files. A test can override each method of the runtime.
 */

export const SANDBOX = 'a'.repeat(64);
export const containerId = (index: number): string => String(index).repeat(64);
const served = [
  'ContainerStatus',
  'PodSandboxStatus',
  'ListPodSandbox',
  'ListContainers',
  'UpdateContainerResources',
  'UpdatePodSandboxResources',
] as const;

const { CONTAINER_RUNNING: RUNNING, CONTAINER_EXITED: EXITED } = ContainerState;
const identity = (bytes: Buffer): Buffer => bytes;

type Responder = (request: Buffer) => Buffer | Promise<Buffer>;

/** An error that responders throw in order to answer with its code. */
export class RuntimeFailure extends Error {
  constructor(
    readonly code: status,
    message: string,
  ) {
    super(message);
  }
}

export class FakeRuntime {
  readonly #server = new Server();
  readonly #folder = mkdtempSync(join(tmpdir(), 'fake-runtime-'));
  readonly #responders = new Map<string, Responder>();
  readonly calls: string[] = [];
  readonly backend: Backend;
  readonly cgroupRoot = join(this.#folder, 'cgroup');
  readonly stateFolder = join(this.#folder, 'state');
  readonly journal = Journal.open(this.stateFolder, { clock: timerlessClock });
  readonly procRoot = join(this.#folder, 'proc');
  /** kubelet's folder. */
  readonly kubeletRoot = join(this.#folder, 'kubelet');
  readonly warnings: LogFields[] = [];
  readonly failOpens: FailOpenReason[] = [];
  /** All counters except failOpens. */
  readonly counted = createCounters();
  /** kubelet's state files, by pod uid. */
  readonly allocated = new Map<string, PodEntry>();
  readonly actuated = new Map<string, PodEntry>();
  /** The API server's specs of pods, by pod uid. */
  readonly specs = new Map<string, PodSpec>();
  /** The allocatable of the Node in the API server. */
  nodeAllocatable: Amounts | undefined;
  readonly node: Node;
  readonly decreaseReclaimer: DecreaseReclaimer;

  private constructor() {
    const address = `unix://${join(this.#folder, 'cri.sock')}`;
    this.backend = new Backend(address);
    const log = {
      debug: () => undefined,
      info: () => undefined,
      warn: (fields: LogFields) => void this.warnings.push(fields),
      error: () => undefined,
    };
    const counters: Counters = { ...this.counted, failOpen: (reason) => void this.failOpens.push(reason) };
    this.node = createNode({
      registry: new Registry(this.backend, log, (pod) => idsInCgroup(this.node.tree, pod)),
      backend: this.backend,
      journal: new PodJournal(this.journal),
      tree: new CgroupTree(this.cgroupRoot, this.procRoot),
      volumes: new MemoryVolumes({ kubeletRoot: this.kubeletRoot }),
      log,
      counters,
      kubelet: {
        refresh: () => undefined,
        refreshed: () => undefined,
        allocated: (uid) => this.allocated.get(uid),
        actuated: (uid) => this.actuated.get(uid),
        allocatedPods: () => this.allocated,
        resizesVolume: (uid) => this.allocated.get(uid)?.volumes !== undefined,
      },
      managers: new ManagerFiles(this.kubeletRoot, { log, counters }),
      specs: { of: ({ uid }) => this.specs.get(uid) },
      allocatable: { amounts: () => this.nodeAllocatable },
      procRoot: this.procRoot,
      reclaimTimeout: 30_000,
    });
    this.decreaseReclaimer = connectDecreaseReclaimer(this.node);
  }

  static async start(): Promise<FakeRuntime> {
    const runtime = new FakeRuntime();
    for (const method of served) {
      runtime.#server.register(runtimePath(method), runtime.#serve(method), identity, identity, 'unary');
    }
    await new Promise<void>((resolve, reject) => {
      const address = runtime.backend.address;
      runtime.#server.bindAsync(address, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    runtime.describePod();
    runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        containers: runtime.node.registry.containersOf(SANDBOX).map(({ containerId: id, name }, index) => {
          const state = existsSync(join(runtime.cgroupRoot, 'kubepods/pod1', id)) ? RUNNING : EXITED;
          return { id, metadata: { name }, state, created_at: BigInt(index) };
        }),
      }),
    );
    return runtime;
  }

  #serve(method: string) {
    return (call: ServerUnaryCall<Buffer, Buffer>, respond: sendUnaryData<Buffer>): void => {
      this.calls.push(method);
      const responder = this.#responders.get(method);
      if (responder === undefined) respond({ code: status.UNAVAILABLE, details: 'no answer' });
      else
        new Promise<Buffer>((resolve) => resolve(responder(call.request))).then(
          (response) => respond(null, response),
          (error: unknown) =>
            respond({ code: error instanceof RuntimeFailure ? error.code : status.NOT_FOUND, details: String(error) }),
        );
    };
  }

  /**
   * Sets the answers of a method. Without a responder it answers UNAVAILABLE. If a responder throws, the code is that
   * of a {@link RuntimeFailure}, and NOT_FOUND for any other error.
   */
  on(method: string, responder?: Responder): void {
    if (responder === undefined) this.#responders.delete(method);
    else this.#responders.set(method, responder);
  }

  /** Sets the answers of a method to those of a responder that receives the previous one. */
  wrapResponder(method: string, responder: (request: Buffer, before: Responder) => ReturnType<Responder>): void {
    const before = this.#responders.get(method);
    if (before !== undefined) this.on(method, (request) => responder(request, before));
  }

  /** Sets the verbose status of the pod. */
  describePod(info: object = { config: podConfig }): void {
    this.on('PodSandboxStatus', () =>
      encode('PodSandboxStatusResponse', { status: { id: SANDBOX }, info: { info: JSON.stringify(info) } }),
    );
  }

  /**
   * Creates running containers with these memory limits in bytes in a pod with that limit. Each quota is a tenth of a
   * CPU.
   */
  makePod(podMemory: string, containers: readonly number[]): void {
    const pod = '/kubepods/pod1';
    this.writeCgroup('/kubepods', { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '100' });
    this.writeCgroup(pod, {
      'memory.max': podMemory,
      'cpu.max': `${containers.length * 10_000} 100000`,
      'cpu.weight': '39',
    });
    this.writeCgroup(`${pod}/${SANDBOX}`, { 'memory.max': 'max', 'cpu.max': 'max 100000', 'cpu.weight': '1' });
    containers.forEach((memory, index) => {
      const limits = { 'memory.max': String(memory), 'cpu.max': '10000 100000', 'cpu.weight': '4' };
      this.writeCgroup(`${pod}/${containerId(index)}`, limits);
      mkdirSync(join(this.procRoot, String(100 + index)), { recursive: true });
      writeFileSync(join(this.procRoot, String(100 + index), 'cgroup'), `0::${pod}/${containerId(index)}\n`);
    });
    this.on('ContainerStatus', (request) => {
      const { container_id } = decode('ContainerStatusRequest', request);
      const index = Number(container_id[0]);
      if (!(index < containers.length)) throw new Error(`no container ${container_id}`);
      return encode('ContainerStatusResponse', {
        status: { id: containerId(index), metadata: { name: `c${index}` }, state: 1 },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 + index }) },
      });
    });
  }

  /** Sets the memory in bytes and the number of online CPUs of the node. */
  makeNode(memory: number, cpus: number): void {
    mkdirSync(this.procRoot, { recursive: true });
    writeFileSync(join(this.procRoot, 'meminfo'), `MemTotal:       ${memory / 1024} kB\nMemFree:         4096 kB\n`);
    const lines = Array.from({ length: cpus }, (_, cpu) => `cpu${cpu} 10 0 20 3000 0 0 0 0 0 0\n`).join('');
    writeFileSync(join(this.procRoot, 'stat'), `cpu  10 0 20 3000 0 0 0 0 0 0\n${lines}intr 1 2 3\n`);
  }

  /** From now on the runtime applies memory and quota of UpdateContainerResources. */
  applyUpdates(rejects: (containerId: string) => boolean = () => false): void {
    this.on('UpdateContainerResources', (request) => {
      const { container_id, linux } = this.decodeUpdate(request);
      if (rejects(container_id)) throw new Error('refused');
      const cgroup = `/kubepods/pod1/${container_id}`;
      const memory = linux?.memory_limit_in_bytes ?? 0n;
      if (memory !== 0n) this.writeFile(cgroup, 'memory.max', memory === -1n ? 'max' : String(memory));
      const quota = linux?.cpu_quota ?? 0n;
      if (quota !== 0n) this.writeFile(cgroup, 'cpu.max', `${quota === -1n ? 'max' : quota} ${linux?.cpu_period}`);
      return Buffer.alloc(0);
    });
  }

  decodeUpdate(request: Buffer): Messages['UpdateContainerResourcesRequest'] {
    return decode('UpdateContainerResourcesRequest', request);
  }

  /** Adds a container that the runtime reports, in addition to those of {@link makePod}. */
  describeContainer(
    id: string,
    status: Partially<NonNullable<Messages['ContainerStatusResponse']['status']>>,
    pid = 0,
  ): void {
    const others = this.#responders.get('ContainerStatus');
    this.on('ContainerStatus', (request) => {
      if (decode('ContainerStatusRequest', request).container_id !== id) return others?.(request) ?? Buffer.alloc(0);
      const info = { sandboxID: SANDBOX, pid };
      return encode('ContainerStatusResponse', { status: { id, ...status }, info: { info: JSON.stringify(info) } });
    });
  }

  writeFile(cgroup: string, file: string, content: string): void {
    writeFileSync(join(this.cgroupRoot, cgroup, file), `${content}\n`);
  }

  removeFile(cgroup: string, file: string): void {
    rmSync(join(this.cgroupRoot, cgroup, file));
  }

  removeCgroup(cgroup: string): void {
    rmSync(join(this.cgroupRoot, cgroup), { recursive: true });
  }

  /** Returns memory.max of a container in bytes. */
  limitOf(index: number): number {
    return Number(this.read(`${containerId(index)}/memory.max`));
  }

  writeCgroup(cgroup: string, files: Readonly<Record<string, string>>): void {
    const folder = join(this.cgroupRoot, cgroup);
    mkdirSync(folder, { recursive: true });
    const use = {
      'memory.current': '1000000',
      'memory.stat': 'anon 500000\nshmem 0\nunevictable 0\nfile 500000\n',
      'memory.events': 'low 0\noom_kill 0\n',
      'memory.high': 'max',
      'memory.reclaim': '',
      'cgroup.procs': '',
    };
    for (const [name, content] of Object.entries({ ...use, ...files }))
      writeFileSync(join(folder, name), `${content}\n`);
  }

  read(file: string): string {
    return readFileSync(join(this.cgroupRoot, 'kubepods/pod1', file), 'utf8').trim();
  }

  async close(): Promise<void> {
    // Reading the records also opens the folder.
    await this.node.journal.restored();
    await (await this.journal).close();
    this.backend.close();
    this.#server.forceShutdown();
    rmSync(this.#folder, { recursive: true });
  }
}

export const podConfig = {
  metadata: { name: 'web', uid: 'uid-1', namespace: 'default' },
  annotations: {},
  linux: { cgroup_parent: '/kubepods/pod1', resources: { cpu_shares: 1024 } },
};

/** Returns an UpdateContainerResourcesRequest as decoded from the wire. */
export function containerUpdate(
  container_id: string,
  linux: Partially<Messages['LinuxContainerResources']>,
): Messages['UpdateContainerResourcesRequest'] {
  const name = 'UpdateContainerResourcesRequest';
  return decode(name, encode(name, { container_id, linux }));
}
