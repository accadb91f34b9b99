import { messageOf } from '../core/errors/index.ts';
import { type Log, noLog } from '../observe/index.ts';
import {
  type Backend,
  type CallOptions,
  type ContainerDescription,
  type PodDescription,
  describeContainer,
  describePod,
  isNotFound,
} from '../runtime/index.ts';

/**
 * The pods and containers of this node: learned from the calls that create them, and from the backend after a start or for an
 * unknown id. The registry only knows which cgroup and which folder belong to an id; their contents are read from the kernel.
 */
export class Registry {
  readonly #pods = new Map<string, PodDescription>();
  /** Container id to its pod and name. */
  readonly #containers = new Map<string, KnownContainer>();
  readonly #backend: Backend;
  readonly #log: Log;
  readonly #watchers: RegistryWatcher[] = [];
  #recovery: Promise<boolean> = Promise.resolve(true);

  constructor(backend: Backend, log: Log = noLog) {
    this.#backend = backend;
    this.#log = log;
  }

  watch(watcher: RegistryWatcher): void {
    this.#watchers.push(watcher);
  }

  learnPod(pod: PodDescription): void {
    const first = !this.#pods.has(pod.sandboxId);
    this.#pods.set(pod.sandboxId, pod);
    if (first) for (const watcher of this.#watchers) watcher.podAdded(pod);
  }

  /** Replaces the description of a known pod. A pod that was removed meanwhile stays removed. */
  updatePod(pod: PodDescription): void {
    if (this.#pods.has(pod.sandboxId)) this.#pods.set(pod.sandboxId, pod);
  }

  learnContainer(container: KnownContainer): void {
    this.#containers.set(container.containerId, container);
  }

  /** @param id an id or a unique prefix; an ambiguous prefix is left to the next recovery */
  forgetPod(id: string): void {
    const sandboxId = uniqueKey(this.#pods, id);
    if (sandboxId === undefined) return;
    const pod = this.#pods.get(sandboxId);
    this.#pods.delete(sandboxId);
    if (pod !== undefined) for (const watcher of this.#watchers) watcher.podRemoved(pod);
    for (const [containerId, container] of this.#containers) {
      if (container.sandboxId === sandboxId) this.#removeContainer(containerId);
    }
  }

  forgetContainer(id: string): void {
    const containerId = uniqueKey(this.#containers, id);
    if (containerId !== undefined) this.#removeContainer(containerId);
  }

  #removeContainer(containerId: string): void {
    this.#containers.delete(containerId);
    for (const watcher of this.#watchers) watcher.containerRemoved(containerId);
  }

  /** Whether a container is known, by its full id. */
  knows(containerId: string): boolean {
    return this.#containers.has(containerId);
  }

  /** Returns a known container by its full id. Its state is not known: the backend has it. */
  container(containerId: string): KnownContainer | undefined {
    return this.#containers.get(containerId);
  }

  /** The known containers of a pod. */
  containersOf(sandboxId: string): KnownContainer[] {
    return [...this.#containers.values()].filter((container) => container.sandboxId === sandboxId);
  }

  /** Returns a known pod by its sandbox id. */
  knownPod(sandboxId: string): PodDescription | undefined {
    return this.#pods.get(sandboxId);
  }

  /** The known pods. */
  get pods(): readonly PodDescription[] {
    return [...this.#pods.values()];
  }

  get size(): { readonly pods: number; readonly containers: number } {
    return { pods: this.#pods.size, containers: this.#containers.size };
  }

  /**
   * Returns a pod by id or unique prefix: from memory, otherwise from the backend. Undefined when the backend does not know it or its
   * status is incomplete. Rejects when the backend cannot be asked.
   */
  async pod(id: string): Promise<PodDescription | undefined> {
    const known = this.#pods.get(id);
    if (known !== undefined) return known;
    try {
      const pod = describePod(await this.#backend.runtime('PodSandboxStatus', { pod_sandbox_id: id, verbose: true }));
      if (pod !== undefined) this.learnPod(pod);
      return pod;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /**
   * Returns a container by id or unique prefix, always from the backend: state and pid change. Undefined when the backend does not know it. Rejects when the backend cannot be asked.
   */
  async describeContainer(id: string, options?: CallOptions): Promise<ContainerDescription | undefined> {
    try {
      const status = await this.#backend.runtime('ContainerStatus', { container_id: id, verbose: true }, options);
      const container = describeContainer(status);
      if (container !== undefined) this.learnContainer(container);
      return container;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /**
   * Compares the registry with the backend, after a start and after each reconnect. Calls are serialized. Never rejects: returns
   * whether it succeeded. Pods that were not learned are asked for when they are needed.
   */
  recover(): Promise<boolean> {
    this.#recovery = this.#recovery.then(async () => {
      const start = performance.now();
      try {
        await this.refresh();
        const ms = Math.round(performance.now() - start);
        this.#log.info({ ...this.size, ms }, 'registry compared with the backend');
        return true;
      } catch (error) {
        if (!this.#backend.isClosed)
          this.#log.warn({ error: messageOf(error) }, 'registry could not be compared with the backend');
        return false;
      }
    });
    return this.#recovery;
  }

  /** Compares the registry with the backend at once: pods may be created without the shim. Rejects when the backend cannot be asked. */
  async refresh(): Promise<void> {
    await this.#recoverPods();
    await this.#recoverContainers();
  }

  async #recoverPods(): Promise<void> {
    // Only pods known before the call may be removed: others are created while it runs.
    const before = [...this.#pods.keys()];
    const { items } = await this.#backend.runtime('ListPodSandbox', {});
    const present = new Set(items.map((item) => item.id));
    for (const id of before) if (!present.has(id)) this.forgetPod(id);
    const unknown = items.filter((item) => !this.#pods.has(item.id));
    // A few at a time: containerd answers in parallel, and the node is busy after a start.
    await forEachOf(unknown, 8, async (item) => {
      await this.pod(item.id);
    });
  }

  async #recoverContainers(): Promise<void> {
    const before = [...this.#containers.keys()];
    const { containers } = await this.#backend.runtime('ListContainers', {});
    const present = new Set(containers.map((container) => container.id));
    for (const id of before) if (!present.has(id)) this.#removeContainer(id);
    for (const { id, pod_sandbox_id, metadata } of containers) {
      this.learnContainer({ containerId: id, sandboxId: pod_sandbox_id, name: metadata?.name ?? '' });
    }
  }
}

/** Called when pods are added, and when pods and containers are removed. Must not throw. */
export interface RegistryWatcher {
  podAdded(pod: PodDescription): void;
  podRemoved(pod: PodDescription): void;
  containerRemoved(containerId: string): void;
}

export interface KnownContainer {
  readonly containerId: string;
  readonly sandboxId: string;
  readonly name: string;
}

function uniqueKey(map: ReadonlyMap<string, unknown>, id: string): string | undefined {
  if (map.has(id)) return id;
  if (id === '') return undefined;
  const matches = [...map.keys()].filter((key) => key.startsWith(id));
  return matches.length === 1 ? matches[0] : undefined;
}

async function forEachOf<Item>(
  items: readonly Item[],
  width: number,
  run: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) await run(item);
  };
  await Promise.all(Array.from({ length: width }, worker));
}
