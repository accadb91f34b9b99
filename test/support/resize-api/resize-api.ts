import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ClientReadableStream } from '@grpc/grpc-js';
import { afterEach, beforeEach } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { createLog } from '../../../src/core/observe/log.ts';
import type { CancelSignal } from '../../../src/core/waiting.ts';
import { Backend } from '../../../src/runtime/backend.ts';
import type { ListedContainers } from '../../../src/sandbox/pods/container-lists.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import { Registry } from '../../../src/sandbox/pods/registry.ts';
import type { Resizes } from '../../../src/sandbox/queue/resizes.ts';
import { podDirectory } from '../../../src/sandbox/report/pod-directory.ts';
import type { PodView } from '../../../src/sandbox/report/pod-view.ts';
import { openResizeApi, type ResizeApi } from '../../../src/server/api/resize-api.ts';
import { listen } from '../../../src/server/listener/listener.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';
import { FakeClock } from '../fake-clock.ts';
import { createResizes, FakeCore, FakeStore, web } from '../resize/fake-resizes.ts';
import { type Answer, ResizeClient } from './client.ts';

/** The id of the container `app` of the pod {@link web}. */
export const app = 'c'.repeat(64);
export const byUid = { uid: web.uid };
export const toMemory = (memory: string) => ({ app: { limits: { memory } } });
/** The error of a decrease that does not fit yet. */
export const inUse = new ShimError(Code.FAILED_PRECONDITION, Reason.MEMORY_NOT_RECLAIMABLE, '100 in use', {
  found: '100',
});

/** The resize API on a socket, above a fake core. Each test gets a new one that knows the pod {@link web}. */
export class TestApi {
  path = '';
  core = new FakeCore();
  clock = new FakeClock();
  resizes!: Resizes;
  registry!: Registry;
  api!: ResizeApi;
  client!: ResizeClient;
  /** Lines of the log. */
  lines: Record<string, unknown>[] = [];
  /** Sandboxes that the backend reports as ready. */
  ready = new Set<string>();
  /** The views that the API reads of each pod, by sandbox id. */
  views = new Map<string, PodView | ShimError>();
  /** Lists the pods of the backend, as the registry does before a pod is reported as unknown. */
  refresh: (signal?: CancelSignal) => Promise<void> = () => Promise.resolve();
  /** The containers that the backend lists after all pods are read. */
  containersAtEnd = new Map<string, ListedContainers>();
  /** Called when a pod is read, which waits for it. */
  onDescribe: (sandboxId: string, signal?: CancelSignal) => unknown = () => undefined;
  /** Returns the process of a client. */
  peerOf: (socket: Socket) => number | undefined = () => undefined;
  readonly #cleanUps: (() => unknown)[] = [];

  constructor(view: PodView) {
    beforeEach(async () => {
      this.views = new Map([[web.sandboxId, view]]);
      await this.#start();
    });
    afterEach(async () => {
      this.client.close();
      await this.resizes.close();
      await this.api.close(0);
      for (const cleanUp of this.#cleanUps.splice(0)) await cleanUp();
    });
  }

  open(mode: number): Promise<ResizeApi> {
    const { resizes, clock, path } = this;
    const destination = { write: (line: string) => void this.lines.push(JSON.parse(line) as Record<string, unknown>) };
    const log = createLog({ level: 'info', destination });
    return openResizeApi({
      ...{ path, resizes, clock, log },
      listen: (onConnection: (connection: Socket) => void) => listen({ path, rights: { mode }, onConnection, log }),
      peerOf: (socket) => this.peerOf(socket),
      pods: this.#pods(),
      counters: createCounters(),
      readiness: () => Promise.resolve({ ready: true, checks: [{ name: 'journal', ready: true, says: 'writable' }] }),
    });
  }

  learn({ sandboxId, uid, namespace, name }: PodIdentity): void {
    this.registry.learnPod({
      sandboxId,
      metadata: { uid, namespace, name },
      cgroupParent: '/kubepods/x',
      annotations: {},
      cpuShares: undefined,
      overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
    });
  }

  /** Requests a decrease that does not fit yet, with `defer`. Returns the deferred resize. */
  async defer(memory = '64Mi'): Promise<Answer> {
    const answer = this.client.call('ResizePod', { pod: byUid, containers: toMemory(memory), defer: true });
    (await this.core.next()).fail(inUse);
    return (await answer)['resize']!;
  }

  /** Starts a watch. Resolves when it is established. */
  async watch(request: object = {}): Promise<ClientReadableStream<Answer>> {
    const watch = this.client.watch(request);
    watch.on('error', () => undefined);
    await once(watch, 'metadata');
    return watch;
  }

  async #start(): Promise<void> {
    const folder = mkdtempSync(join(tmpdir(), 'resize-api-'));
    this.path = join(folder, 'ours/resize.sock');
    this.core = new FakeCore();
    this.clock = new FakeClock();
    this.lines = [];
    this.onDescribe = () => undefined;
    this.containersAtEnd = new Map();
    this.peerOf = () => undefined;
    this.ready = new Set();
    this.refresh = () => Promise.resolve();
    const backend = new Backend(`unix://${folder}/none.sock`);
    this.registry = new Registry(backend);
    this.learn(web);
    this.registry.learnContainer({ containerId: app, sandboxId: web.sandboxId, name: 'app' });
    const bounds = { watchers: 3, unreadEvents: 50 };
    this.resizes = createResizes({ core: this.core, clock: this.clock, store: new FakeStore(), bounds });
    this.registry.watch({
      podRemoved: ({ sandboxId }) => this.resizes.podRemoved(sandboxId),
    });
    this.api = await this.open(0o600);
    this.client = new ResizeClient(this.path);
    this.#cleanUps.push(
      () => backend.close(),
      () => rmSync(folder, { recursive: true }),
    );
  }

  #pods() {
    const { registry } = this;
    return podDirectory({
      registry: {
        pod: (id) => registry.pod(id),
        get pods() {
          return registry.pods;
        },
        container: (containerId) => registry.container(containerId),
        refresh: async (options) => {
          await this.refresh(options?.signal);
          return new Map();
        },
        refreshPods: (options) => this.refresh(options?.signal),
        refreshContainers: () => Promise.resolve(this.containersAtEnd),
      },
      volumes: new MemoryVolumes({ kubeletRoot: '/nonexistent' }),
      isReady: (sandboxId) => Promise.resolve(this.ready.has(sandboxId)),
      readPodView: async (sandboxId, _, signal) => {
        await this.onDescribe(sandboxId, signal);
        const found = this.views.get(sandboxId);
        if (found === undefined || found instanceof ShimError) throw found ?? new Error('not described');
        return found;
      },
    });
  }
}
