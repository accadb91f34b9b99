import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { CriClient, descriptorsOf } from '../support/cri/client.ts';
import { KUBELET_ROOT, type PodSpec, RunningPod, runPod } from '../support/cri/pod.ts';
import { ShimProcess } from '../support/cri/shim.ts';
import { FakeApiServer } from '../support/kubernetes/fake-api-server.ts';
import { ResizeClient } from '../support/resize-api/client.ts';

const LISTEN = 'unix:///run/soak/cri.sock';
const RESIZE = '/run/soak/resize.sock';
const NODE = 'node-1';
const VOLUME = 'volume.cri-resize-shim.io/cache';
const PODS = 4;
/** In MiB. */
const SIZES = [48, 64, 96, 128];
const POD = {
  containers: ['a', 'b'].map((name) => ({
    name,
    command: ['sleep', '1000000'],
    resources: { memory_limit_in_bytes: 64 * MiB, cpu_quota: 10_000, cpu_period: 100_000, cpu_shares: 102 },
    ...(name === 'a' && { mounts: { cache: '/cache' } }),
  })),
  volumes: [{ name: 'cache', size: 32 * MiB }],
} satisfies Omit<PodSpec, 'name'>;

/** Removes a pod in kubelet's order: volumes and the pod's folder first, and then the sandbox. */
async function removeAsKubelet(pod: RunningPod): Promise<void> {
  const { client, uid, sandboxId, containers, volumes, qos } = pod;
  await client.call('StopPodSandbox', { pod_sandbox_id: sandboxId });
  await execa(
    'umount',
    volumes.map(({ name }) => pod.volumePath(name)),
  );
  rmSync(join(KUBELET_ROOT, 'pods', uid), { recursive: true });
  await new RunningPod(client, uid, sandboxId, containers, [], qos).remove();
}

interface Extra {
  readonly nodeArgs?: readonly string[];
  readonly args?: readonly string[];
}

/** The node of a soak: a shim with a test API server, containerd, pods, and every way to resize the pods. */
export class SoakStage {
  readonly #folder = mkdtempSync(join(tmpdir(), 'soak-'));
  readonly #direct = new CriClient('unix:///run/containerd/containerd.sock');
  readonly #server = new FakeApiServer();
  readonly #pods: RunningPod[] = [];
  readonly #extra: Extra;
  #shim: ShimProcess | undefined;
  #cri: CriClient | undefined;
  #api: ResizeClient | undefined;
  #created = 0;
  #replaced = 0;
  /** Number of processes of removed pods that were killed for lack of memory. */
  #oomKills = 0;

  /** @param extra flags for Node and for the shim */
  constructor(extra: Extra = {}) {
    this.#extra = extra;
  }

  async begin(): Promise<void> {
    await this.#server.start();
    const kubeconfig = this.#server.kubeconfig(join(this.#folder, 'kubeconfig'));
    const args = ['--state-folder', this.#state, '--resize-listen', `unix://${RESIZE}`];
    this.#shim = await ShimProcess.start({
      listen: LISTEN,
      args: [...args, '--kubeconfig', kubeconfig, '--node-name', NODE, ...(this.#extra.args ?? [])],
      nodeArgs: this.#extra.nodeArgs ?? [],
    });
    this.#cri = new CriClient(LISTEN);
    this.#api = new ResizeClient(RESIZE);
    await this.#shim.waitForLog(({ msg }) => msg === 'watch of pod annotations started');
    for (let count = 0; count < PODS; count += 1) await this.#makePod();
  }

  async end(): Promise<void> {
    for (const pod of this.#pods.splice(0)) await pod.remove();
    this.#cri?.close();
    this.#api?.close();
    await this.#shim?.stop();
    this.#direct.close();
    await this.#server.stop();
  }

  /** Makes the resize with this number. Ways and pods alternate. Rejects if the resize fails. */
  async resize(number: number): Promise<void> {
    const ways = [
      (pod: RunningPod, size: number) => this.#updateContainer(pod, size),
      (pod: RunningPod, size: number) => this.#updatePod(pod, size),
      (pod: RunningPod, size: number) => this.#resizePod(pod, size),
      (pod: RunningPod, size: number) => this.#annotate(pod, size),
    ];
    const way = ways[number % ways.length];
    const pod = this.#pods[Math.floor(number / ways.length) % PODS];
    if (way === undefined || pod === undefined) throw new Error('there are no pods');
    // Differs from the current size: each way is used for a pod in every PODS-th turn.
    const size = SIZES[Math.floor(number / ways.length / PODS) % SIZES.length] ?? 0;
    await way(pod, size);
  }

  /** Sends a signal to the shim. */
  signal(name: NodeJS.Signals): void {
    process.kill(this.#pid, name);
  }

  /** Calls the shim as kubelet does. */
  call(method: string, request: object): Promise<unknown> {
    return this.#through.call(method, request);
  }

  /** Replaces the oldest pod, through the shim. */
  async replacePod(): Promise<void> {
    const pod = this.#pods.shift();
    if (pod === undefined) throw new Error('there are no pods');
    this.#oomKills += pod.oomKills();
    this.#server.delete(pod.uid);
    await removeAsKubelet(pod);
    await this.#makePod();
    this.#replaced += 1;
  }

  /** Number of pods that were removed and created again. */
  get replaced(): number {
    return this.#replaced;
  }

  get resident(): number {
    const status = readFileSync(`/proc/${this.#pid}/status`, 'utf8');
    return 1024 * Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]);
  }

  get descriptors(): number {
    return descriptorsOf(this.#pid);
  }

  /** The files of the journal that belong to no present pod. */
  get leftovers(): readonly string[] {
    return readdirSync(this.#state, { recursive: true })
      .map(String)
      .filter((name) => name.endsWith('.json') && !this.#pods.some(({ uid }) => name.includes(uid)));
  }

  /** Number of processes that were killed for lack of memory, in all pods so far. */
  get oomKills(): number {
    return this.#pods.reduce((all, pod) => all + pod.oomKills(), this.#oomKills);
  }

  get #state(): string {
    return join(this.#folder, 'state');
  }

  get #pid(): number {
    const pid = this.#shim?.process.pid;
    if (pid === undefined) throw new Error('the shim has not been started');
    return pid;
  }

  async #makePod(): Promise<void> {
    this.#created += 1;
    const name = `web-${this.#created}`;
    const pod = await runPod(this.#through, { ...POD, name });
    this.#pods.push(pod);
    this.#server.set({ uid: pod.uid, name, namespace: 'default', nodeName: NODE, annotations: {} });
  }

  get #through(): CriClient {
    if (this.#cri === undefined) throw new Error('the shim has not been started');
    return this.#cri;
  }

  async #updateContainer(pod: RunningPod, size: number): Promise<void> {
    const linux = { memory_limit_in_bytes: size * MiB, cpu_quota: size * 100, cpu_period: 100_000 };
    await this.#through.call('UpdateContainerResources', { container_id: pod.id('a'), linux });
    expect(pod.read('memory.max', 'a')).toBe(String(size * MiB));
  }

  async #updatePod(pod: RunningPod, size: number): Promise<void> {
    const memory = (256 + size) * MiB;
    const resources = { memory_limit_in_bytes: memory, cpu_quota: 50_000, cpu_period: 100_000 };
    await this.#through.call('UpdatePodSandboxResources', { pod_sandbox_id: pod.sandboxId, resources });
    expect(pod.read('memory.max')).toBe(String(memory));
  }

  async #resizePod(pod: RunningPod, size: number): Promise<void> {
    const containers = { a: { limits: { memory: `${size + 8}Mi` } }, b: { limits: { memory: `${size}Mi` } } };
    await this.#api?.call('ResizePod', { pod: { sandbox_id: pod.sandboxId }, containers });
    expect(pod.read('memory.max', 'b')).toBe(String(size * MiB));
  }

  async #annotate(pod: RunningPod, size: number): Promise<void> {
    this.#server.annotate(pod.uid, { [VOLUME]: `${size}Mi` });
    await expect.poll(() => pod.volume('cache').size, { timeout: 30_000, interval: 5 }).toBe(size * MiB);
  }
}
