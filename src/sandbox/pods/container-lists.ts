import { Code, isServiceError, type Log, steadyNow, wallTime, within } from '../../core/index.ts';
import {
  type Backend,
  type CallOptions,
  ContainerState,
  type Messages,
  type PodDescription,
} from '../../runtime/index.ts';

/** Containers as the backend lists them. */
export type ListedContainers = Messages['ListContainersResponse']['containers'];

export interface KnownContainer {
  readonly containerId: string;
  readonly sandboxId: string;
  readonly name: string;
  /** Nanoseconds since the epoch. Absent until the backend has described or listed the container. */
  readonly createdAt?: bigint;
}

/** Maximum time to wait for a pod's containers, in a list or one by one, in milliseconds. */
export const LIST_MS = 1000;

type ListedContainer = ListedContainers[number];

interface ContainerListsOptions {
  readonly backend: Pick<Backend, 'runtime'>;
  readonly log: Log;
  /** Returns the known containers of a pod. */
  readonly known: (sandboxId: string) => readonly KnownContainer[];
  /** Returns the ids of the containers that have a cgroup in that of the pod. */
  readonly inCgroup: (pod: PodDescription) => readonly string[];
  /** Asks the backend for one container. Undefined when the backend does not know it. */
  readonly ask: (id: string, options: CallOptions) => Promise<ListedContainer | undefined>;
}

/**
 * Lists the containers of a pod. containerd reads the status of every container of the node before it filters a list by
 * pod (internal/cri/server/container_list.go), and an update that hangs holds the status of its container: so one
 * container can block the lists of all pods. The status of another container is not affected. If a list is not answered
 * within {@link LIST_MS}, the known containers are asked for one by one, and no other list is made until that one has
 * ended.
 */
export class ContainerLists {
  /** Number of lists that were not answered in time. */
  #late = 0;

  constructor(private readonly options: ContainerListsOptions) {}

  /** Returns the containers of a pod's sandbox, in any order. Rejects when the backend cannot be asked. */
  async of(pod: PodDescription, options: CallOptions = {}): Promise<ListedContainers> {
    return (await this.#list(pod, options)) ?? this.#oneByOne(pod, options);
  }

  /** Returns undefined if the backend does not answer in time, or has not answered an earlier list. */
  async #list({ sandboxId }: PodDescription, options: CallOptions): Promise<ListedContainers | undefined> {
    if (this.#late > 0) return undefined;
    const list = this.options.backend.runtime('ListContainers', { filter: { pod_sandbox_id: sandboxId } }, options);
    const listed = await within(LIST_MS, list);
    if (listed !== undefined) return listed.containers;
    this.#late += 1;
    const ended = (): void => void (this.#late -= 1);
    list.then(ended, ended);
    this.options.log.warn({ pod: sandboxId, ms: LIST_MS }, 'containers not listed in time: asked for one by one');
    return undefined;
  }

  async #oneByOne(pod: PodDescription, options: CallOptions): Promise<ListedContainers> {
    const inCgroup = new Set(this.options.inCgroup(pod));
    const known = new Map(this.options.known(pod.sandboxId).map((one) => [one.containerId, one]));
    const deadline = Math.min(steadyNow() + LIST_MS, options.deadline ?? Infinity);
    const ask = async (id: string): Promise<ListedContainer | undefined> => {
      // A container with a cgroup runs, even if its status is not answered because an update of it hangs.
      const one = inCgroup.has(id) ? known.get(id) : undefined;
      try {
        return await this.options.ask(id, one === undefined ? options : { ...options, deadline });
      } catch (error) {
        if (one !== undefined && isLate(error)) return running(one);
        throw error;
      }
    };
    const listed = await Promise.all([...new Set([...known.keys(), ...inCgroup])].map(ask));
    // The cgroups of an earlier sandbox of the pod may still exist.
    return listed.flatMap((one) => (one?.pod_sandbox_id === pod.sandboxId ? [one] : []));
  }
}

const isLate = (error: unknown): boolean => isServiceError(error) && error.code === Code.DEADLINE_EXCEEDED;

const running = ({ containerId, sandboxId, name, createdAt }: KnownContainer): ListedContainer => ({
  id: containerId,
  pod_sandbox_id: sandboxId,
  metadata: { name, attempt: 0 },
  state: ContainerState.CONTAINER_RUNNING,
  // A container without a known creation time was created since the start, after all others.
  created_at: createdAt ?? BigInt(wallTime()) * 1_000_000n,
  labels: {},
  annotations: {},
});
