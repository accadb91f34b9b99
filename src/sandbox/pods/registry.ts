import { Code, isServiceError, type Log, messageOf, noLog } from '../../core/index.ts';
import {
  type Backend,
  type CallOptions,
  type ContainerDescription,
  describeContainer,
  describePod,
  isNotFound,
  type Messages,
  type PodDescription,
} from '../../runtime/index.ts';
import { ContainerLists, type KnownContainer, type ListedContainers } from './container-lists.ts';
import { containerSubject, podSubject } from './names.ts';

/**
 * The pods and containers of this node: learned from the calls that create them, and from the backend after a start or
 * for an unknown id. The registry only knows which cgroup and which folder belong to an id; their contents are read
 * from the kernel.
 */
export class Registry {
  readonly #pods = new Map<string, PodDescription>();
  /** Container id to its pod and name. */
  readonly #containers = new Map<string, KnownContainer>();
  /** The ids of the known containers, by sandbox id. */
  readonly #containersByPod = new Map<string, Set<string>>();
  /** Number of calls in progress that start a container, by container id. */
  readonly #starts = new Map<string, number>();
  readonly #watchers: Partial<RegistryWatcher>[] = [];
  readonly #lists: ContainerLists;
  #recovery: Promise<boolean> = Promise.resolve(true);

  /** @param inCgroup returns the ids of the containers that have a cgroup in that of a pod */
  constructor(
    private readonly backend: Backend,
    private readonly log: Log = noLog,
    inCgroup: (pod: PodDescription) => readonly string[] = () => [],
  ) {
    const ask = async (id: string, options: CallOptions): Promise<ListedContainers[number] | undefined> => {
      const { status, container } = (await this.#statusOf(id, options)) ?? {};
      return status && container ? { ...status, pod_sandbox_id: container.sandboxId } : undefined;
    };
    this.#lists = new ContainerLists({ backend, log, inCgroup, ask, known: (id) => this.containersOf(id) });
  }

  watch(watcher: Partial<RegistryWatcher>): void {
    this.#watchers.push(watcher);
  }

  learnPod(pod: PodDescription): void {
    const first = !this.#pods.has(pod.sandboxId);
    this.#pods.set(pod.sandboxId, pod);
    if (first) for (const watcher of this.#watchers) watcher.podAdded?.(pod);
  }

  /** Replaces the description of a known pod. A pod that was removed meanwhile stays removed. */
  updatePod(pod: PodDescription): void {
    if (this.#pods.has(pod.sandboxId)) this.#pods.set(pod.sandboxId, pod);
  }

  learnContainer(container: KnownContainer): void {
    const { containerId, sandboxId, name, createdAt } = container;
    const before = this.#containers.get(containerId);
    // Each list of a large node repeats thousands of containers.
    if (before?.sandboxId === sandboxId && before.name === name && before.createdAt === createdAt) return;
    if (before !== undefined && before.sandboxId !== sandboxId) this.#detach(before);
    // A description of a container has more, which would stay in memory.
    this.#containers.set(containerId, { containerId, sandboxId, name, ...(createdAt !== undefined && { createdAt }) });
    const ofPod = this.#containersByPod.get(sandboxId);
    if (ofPod === undefined) this.#containersByPod.set(sandboxId, new Set([containerId]));
    else ofPod.add(containerId);
  }

  /**
   * Records the begin of a call that starts a container. Returns a function that records its end. Ignores unknown ids.
   * @param id an id or a unique prefix
   */
  containerStarts(id: string): () => void {
    const containerId = uniqueKey(this.#containers, id);
    if (containerId === undefined) return () => undefined;
    const count = (change: 1 | -1): void => {
      const left = (this.#starts.get(containerId) ?? 0) + change;
      if (left === 0) this.#starts.delete(containerId);
      else this.#starts.set(containerId, left);
    };
    count(1);
    return () => count(-1);
  }

  /** Whether a call that starts a container has not ended, by its full id. Includes only calls through the shim. */
  isStarting(containerId: string): boolean {
    return this.#starts.has(containerId);
  }

  /**
   * Reports the start of a container to the watchers. Unknown ids are ignored.
   * @param id an id or a unique prefix
   */
  containerStarted(id: string): void {
    const container = this.#containers.get(uniqueKey(this.#containers, id) ?? '');
    if (container !== undefined) for (const watcher of this.#watchers) watcher.containerStarted?.(container);
  }

  /** Removes a pod. Leaves an ambiguous prefix to the next recovery. @param id an id or a unique prefix */
  forgetPod(id: string): void {
    const sandboxId = uniqueKey(this.#pods, id);
    if (sandboxId === undefined) return;
    const pod = this.#pods.get(sandboxId);
    this.#pods.delete(sandboxId);
    if (pod !== undefined) for (const watcher of this.#watchers) watcher.podRemoved?.(pod);
    for (const { containerId } of this.containersOf(sandboxId)) this.#removeContainer(containerId);
  }

  forgetContainer(id: string): void {
    const containerId = uniqueKey(this.#containers, id);
    if (containerId !== undefined) this.#removeContainer(containerId);
  }

  #removeContainer(containerId: string): void {
    const container = this.#containers.get(containerId);
    this.#containers.delete(containerId);
    if (container !== undefined) this.#detach(container);
    for (const watcher of this.#watchers) watcher.containerRemoved?.(containerId);
  }

  #detach({ containerId, sandboxId }: KnownContainer): void {
    const ofPod = this.#containersByPod.get(sandboxId);
    ofPod?.delete(containerId);
    if (ofPod?.size === 0) this.#containersByPod.delete(sandboxId);
  }

  /** Whether a container is known, by its full id. */
  knows(containerId: string): boolean {
    return this.#containers.has(containerId);
  }

  /** Returns a known container by its full id. Does not include its state, which only the backend reports. */
  container(containerId: string): KnownContainer | undefined {
    return this.#containers.get(containerId);
  }

  /** The known containers of a pod. */
  containersOf(sandboxId: string): KnownContainer[] {
    return [...(this.#containersByPod.get(sandboxId) ?? [])].flatMap((id) => this.#containers.get(id) ?? []);
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
   * Returns a pod by id or unique prefix: from memory, otherwise from the backend. Undefined when the backend does not
   * know it or its status is incomplete. Rejects when the backend cannot be asked.
   */
  async pod(id: string, options?: CallOptions): Promise<PodDescription | undefined> {
    const known = this.#pods.get(id);
    if (known !== undefined) return known;
    try {
      const request = { pod_sandbox_id: id, verbose: true };
      const pod = describePod(await this.backend.runtime('PodSandboxStatus', request, options));
      if (pod !== undefined) this.learnPod(pod);
      return pod;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /**
   * Returns a container by id or unique prefix, always from the backend: state and pid change. Undefined when the
   * backend does not know it. Rejects when the backend cannot be asked.
   */
  async describeContainer(id: string, options?: CallOptions): Promise<ContainerDescription | undefined> {
    return (await this.#statusOf(id, options))?.container;
  }

  async #statusOf(id: string, options: CallOptions | undefined): Promise<StatusOfContainer | undefined> {
    try {
      const answer = await this.backend.runtime('ContainerStatus', { container_id: id, verbose: true }, options);
      const container = describeContainer(answer);
      if (container !== undefined) this.learnContainer(container);
      return { status: answer.status, container };
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw this.#withName(id, error);
    }
  }

  /** Adds the container to the error of a call that timed out: its update may hang in the runtime. */
  #withName(id: string, error: unknown): unknown {
    if (!isServiceError(error) || error.code !== Code.DEADLINE_EXCEEDED) return error;
    const known = this.#containers.get(id);
    const pod = known && this.#pods.get(known.sandboxId);
    const name = known && pod ? `${containerSubject(known, pod).text} of ${podSubject(pod).text} (${id})` : id;
    const details = `ContainerStatus of ${name}: ${error.details}: an update of the container may hang in the runtime`;
    return Object.assign(error, { details, message: `${error.code} DEADLINE_EXCEEDED: ${details}` });
  }

  /** Returns a pod's containers in any order, as {@link ContainerLists} does. Rejects if the backend fails. */
  listContainers(pod: PodDescription, options?: CallOptions): Promise<ListedContainers> {
    return this.#lists.of(pod, options);
  }

  /**
   * Compares the registry with the backend, after a start and after each reconnect. Calls are serialized. Never
   * rejects: returns whether it succeeded. Requests pods that were not learned when they are needed.
   */
  recover(): Promise<boolean> {
    this.#recovery = this.#recovery.then(async () => {
      const start = performance.now();
      try {
        await this.refresh();
        const ms = Math.round(performance.now() - start);
        this.log.info({ ...this.size, ms }, 'registry compared with the backend');
        return true;
      } catch (error) {
        if (!this.backend.isClosed)
          this.log.warn({ error: messageOf(error) }, 'registry could not be compared with the backend');
        return false;
      }
    });
    return this.#recovery;
  }

  /**
   * Compares the registry with the backend at once: pods may be created without the shim. Returns the containers that
   * the backend has listed. Rejects when the backend cannot be asked.
   */
  async refresh(options?: CallOptions): Promise<ContainersByPod> {
    await this.refreshPods(options);
    return this.refreshContainers(options);
  }

  /** Compares the pods alone with the backend. Rejects when the backend cannot be asked. */
  async refreshPods(options?: CallOptions): Promise<void> {
    // Only pods known before the call may be removed: others are created while it runs.
    const before = [...this.#pods.keys()];
    const { items } = await this.backend.runtime('ListPodSandbox', {}, options);
    const present = new Set(items.map((item) => item.id));
    const unknown = items.filter((item) => !this.#pods.has(item.id));
    // A few at a time: containerd answers in parallel, and the node is busy after a start.
    const failures: unknown[] = [];
    await forEachOf(unknown, 8, async (item) => {
      // A few pods that cannot be described do not prevent the others from being learned.
      if (failures.length < MAX_FAILURES)
        await this.pod(item.id, options).catch((error: unknown) => failures.push(error));
    });
    if (failures.length > 0) throw failures[0];
    // Removes pods last: data stored for a replaced sandbox moves to the next one, which must be known by then.
    for (const id of before) if (!present.has(id)) this.forgetPod(id);
  }

  /** Compares only the containers with the backend. Returns those listed. Rejects if the backend fails. */
  async refreshContainers(options?: CallOptions): Promise<ContainersByPod> {
    const before = [...this.#containers.keys()];
    const { containers } = await this.backend.runtime('ListContainers', {}, options);
    const present = new Set(containers.map((container) => container.id));
    for (const id of before) if (!present.has(id)) this.#removeContainer(id);
    for (const { id, pod_sandbox_id, metadata, created_at: createdAt } of containers) {
      this.learnContainer({ containerId: id, sandboxId: pod_sandbox_id, name: metadata?.name ?? '', createdAt });
    }
    return Map.groupBy(containers, ({ pod_sandbox_id }) => pod_sandbox_id);
  }
}

/** After this number of failures, the backend is not asked for further pods. */
const MAX_FAILURES = 8;

interface StatusOfContainer {
  readonly status: Messages['ContainerStatusResponse']['status'];
  /** Undefined if the status does not name the container's pod. */
  readonly container: ContainerDescription | undefined;
}

/** The containers that the backend has listed, by sandbox id. Pods without a container are left out. */
export type ContainersByPod = ReadonlyMap<string, ListedContainers>;

/** Called when pods are added, when containers are started, and when both are removed. Must not throw. */
export interface RegistryWatcher {
  podAdded(pod: PodDescription): void;
  podRemoved(pod: PodDescription): void;
  containerStarted(container: KnownContainer): void;
  containerRemoved(containerId: string): void;
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
