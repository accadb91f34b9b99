import { closeSync, mkdirSync, openSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient, Resources } from '../cri/client.ts';
import type { PodSpec, RunningPod } from '../cri/pod.ts';
import { KUBELET_ROOT, runPod } from '../cri/pod.ts';
import type { ShimProcess } from '../cri/shim.ts';
import type { Answer, ResizeClient } from '../resize-api/client.ts';
import { Kubelet, removeFiles } from './kubelet.ts';
import { Served } from './served.ts';
import { cgroupOf, Tenant } from './tenant.ts';

export const SLEEP = ['sleep', '1000000'];
export const CACHE = 'volume.cri-resize-shim.io/cache';

export const limit = (mebibytes: number): Resources => ({ memory_limit_in_bytes: mebibytes * MiB });
/** In MiB. */
export const sizeOf = (running: RunningPod, name = 'cache'): number => running.volume(name).size / MiB;

/** A shim, and pods with a memory-backed volume. */
export class VolumeStage {
  readonly #pods: RunningPod[] = [];

  private constructor(
    readonly served: Served,
    readonly memory: number,
  ) {}

  /** @param memory limit of a pod's container, in MiB */
  static async start(name: string, memory: number): Promise<VolumeStage> {
    return new VolumeStage(await Served.start({ name }), memory);
  }

  /** Creates a pod with one container, `a`, and a volume of 64 MiB, `cache`. */
  async pod(spec: Partial<PodSpec> = {}): Promise<RunningPod> {
    const running = await runPod(this.served.cri, {
      name: 'web',
      containers: [{ name: 'a', command: SLEEP, resources: limit(this.memory), mounts: { cache: '/cache' } }],
      volumes: [{ name: 'cache', size: 64 * MiB }],
      ...spec,
    });
    this.#pods.push(running);
    return running;
  }

  resize(running: RunningPod, volumes: Readonly<Record<string, string>>, more: object = {}): Promise<Answer> {
    return this.served.api.call('ResizePod', { pod: { sandbox_id: running.sandboxId }, volumes, ...more });
  }

  async removePods(): Promise<void> {
    for (const pod of this.#pods.splice(0)) await pod.remove();
  }
}

// A folder of the machine outside, so its pages are page cache. All other folders of the node are in a tmpfs, whose
// pages are not.
const outside = process.env['NODE_OUT'] ?? '';
/** Time during which kubelet retries with the shim's help, and without it. */
export const HELPED_MS = 20_000;
export const ALONE_MS = 1500;

export const useOf = (pod: RunningPod): number => Number(pod.read('memory.current', 'a'));
export const limitsOf = (pod: RunningPod): string[] => [pod.read('memory.max'), pod.read('memory.max', 'a')];
export const both = (mebibytes: number): string[] => [String(mebibytes * MiB), String(mebibytes * MiB)];
export const highsOf = (pod: RunningPod): string[] => [pod.read('memory.high'), pod.read('memory.high', 'a')];

/** The shim's part of a verbose PodSandboxStatus. */
interface Status {
  readonly state?: string;
  readonly lastError?: { readonly reason: string; readonly message: string };
  readonly decrease?: { readonly state: string; readonly message: string; readonly reclaimedBytes: number };
  readonly pod: { readonly pending?: object; readonly actual?: object };
  readonly containers: Readonly<Record<string, { readonly pending?: object }>>;
}
/** How a process of the container fills memory: page cache, and memory that cannot be reclaimed. */
export const CASES: {
  readonly what: string;
  readonly fill: (tenant: Tenant, stage: ForesightStage) => Promise<void>;
  /** Whether usage without page cache is below the new limit. */
  readonly canShrink: boolean;
}[] = [
  { what: 'page cache', fill: (tenant, stage) => tenant.run('read', stage.bigFile(100)), canShrink: true },
  {
    what: 'dirty page cache',
    fill: (tenant, stage) => tenant.run('dirty', stage.newFile(outside), 100 * MiB),
    canShrink: true,
  },
  {
    what: 'shared memory',
    fill: (tenant, stage) => tenant.run('dirty', stage.newFile('/tmp'), 100 * MiB),
    canShrink: false,
  },
  { what: 'anonymous memory', fill: (tenant) => tenant.run('hold', 100 * MiB), canShrink: false },
  {
    what: 'a mixture that fits',
    fill: async (tenant, stage) => {
      await tenant.run('hold', 16 * MiB);
      await tenant.run('dirty', stage.newFile('/tmp'), 16 * MiB);
      await tenant.run('dirty', stage.newFile(outside), 30 * MiB);
      await tenant.run('read', stage.bigFile(60));
    },
    canShrink: true,
  },
  {
    what: 'a mixture that does not fit',
    fill: async (tenant, stage) => {
      await tenant.run('hold', 52 * MiB);
      await tenant.run('dirty', stage.newFile('/tmp'), 16 * MiB);
      await tenant.run('read', stage.bigFile(60));
    },
    canShrink: false,
  },
];

/** A shim, a kubelet that admits decreases, and pods with one container, `a`, whose processes use memory. */
export class ForesightStage {
  readonly pods: RunningPod[] = [];
  readonly tenants: Tenant[] = [];
  readonly files: string[] = [];
  #served: Served | undefined;
  #kubelet: Kubelet | undefined;
  #made = 0;

  constructor() {
    afterEach(() => this.#clean());
  }

  async start(...args: string[]): Promise<void> {
    mkdirSync(KUBELET_ROOT, { recursive: true });
    this.#served = await Served.start({ name: 'foresight-test', args });
    this.#kubelet = new Kubelet(this.cri);
  }

  async stop(): Promise<void> {
    await this.#started.stop();
    removeFiles();
  }

  get #started(): Served {
    if (this.#served === undefined) throw new Error('the shim has not been started');
    return this.#served;
  }

  get shim(): ShimProcess {
    return this.#started.shim;
  }

  get cri(): CriClient {
    return this.#started.cri;
  }

  get api(): ResizeClient {
    return this.#started.api;
  }

  get kubelet(): Kubelet {
    if (this.#kubelet === undefined) throw new Error('the shim has not been started');
    return this.#kubelet;
  }

  async #clean(): Promise<void> {
    for (const tenant of this.tenants.splice(0)) await tenant.end();
    await Promise.all(
      this.pods.splice(0).map((pod) => {
        this.kubelet.forget(pod);
        return pod.remove();
      }),
    );
    for (const file of this.files.splice(0)) rmSync(file, { force: true });
  }

  /** Creates a pod with one container, `a`, which kubelet knows. */
  async makePod(mebibytes = 192, level?: number): Promise<RunningPod> {
    const resources = level === undefined ? { memory_limit_in_bytes: mebibytes * MiB } : {};
    const pod = await runPod(this.cri, {
      name: 'web',
      containers: [{ name: 'a', command: ['sleep', '1000000'], resources }],
      ...(level !== undefined && { podMemory: level * MiB }),
    });
    this.pods.push(pod);
    this.kubelet.runs(pod, { containers: { a: level === undefined ? mebibytes : undefined }, ...(level && { level }) });
    return pod;
  }

  async tenantIn(pod: RunningPod): Promise<Tenant> {
    const tenant = await Tenant.in(cgroupOf(pod.cgroup, pod.id('a')));
    this.tenants.push(tenant);
    return tenant;
  }

  /** Creates a sparse file outside: it takes no space there, and its pages are page cache when read. */
  bigFile(mebibytes: number): string {
    const file = join(outside, `foresight-${(this.#made += 1)}`);
    closeSync(openSync(file, 'w'));
    truncateSync(file, mebibytes * MiB);
    this.files.push(file);
    return file;
  }

  /** Creates a file whose pages are shared memory or, in the folder outside, dirty page cache. */
  newFile(folder: string): string {
    const file = join(folder, `foresight-new-${(this.#made += 1)}`);
    this.files.push(file);
    return file;
  }

  async statusOf(pod: RunningPod): Promise<Status> {
    const request = { pod_sandbox_id: pod.sandboxId, verbose: true };
    const { info } = await this.cri.call<{ info: Record<string, string> }>('PodSandboxStatus', request);
    return JSON.parse(info['cri-resize-shim'] ?? '{}') as Status;
  }

  /** Provides one pod for all tests of a group, with 192 MiB at the start of each test. */
  sharedPod(): () => RunningPod {
    let shared: RunningPod | undefined;
    const pod = (): RunningPod => {
      if (shared === undefined) throw new Error('the pod does not exist yet');
      return shared;
    };
    beforeAll(async () => {
      shared = await this.makePod();
      this.pods.splice(0);
    });
    afterEach(() => this.kubelet.resize(pod(), { containers: { a: 192 } }, HELPED_MS));
    afterAll(async () => {
      this.kubelet.forget(pod());
      await pod().remove();
    });
    return pod;
  }
}
