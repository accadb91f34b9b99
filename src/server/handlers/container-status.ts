import { type CgroupLimits, type CgroupPath, isCgroupVanished } from '../../cgroups/index.ts';
import {
  ContainerState,
  type PlacedStatus,
  type ReportedResources,
  type ReportedStatus,
  readContainerId,
  readContainerStatus,
  readContainerStatuses,
  withResources,
  withResourcesOfStatuses,
} from '../../runtime/index.ts';
import { kernelResources, type Node } from '../../sandbox/index.ts';
import type { MaybePromise } from '../proxy/interception.ts';
import { orUndefined } from './forward.ts';
import type { AmendedCall, Amendment, MessageAmendment } from './interceptors.ts';

/**
 * Amends the ContainerStatus of a running container, because KEP-1287 requires the actual values. Where the runtime's
 * store and the kernel differ, appends the kernel's values to the resources; they take precedence when the client
 * decodes the response. Otherwise the response is unchanged.
 *
 * The limits are read while the backend works. They are from the time of the call, and a client cannot know more.
 */
export function containerStatus(node: Node): Pick<AmendedCall, 'amendment' | 'prepare'> {
  const amend = (kernel: Kernel | undefined): Amendment => {
    return ({ response }, trace) => {
      const status = orUndefined(node.failOpen, 'ContainerStatusResponse', () => readContainerStatus(response));
      if (status === undefined) return undefined;
      trace.fields.container = status.id;
      // The container may have just exited.
      const unreadable = (error: unknown): void => node.failOpen('unreadable_state', status.id, error);
      const changes = kernelChanges(node, status, unreadable, kernel);
      if (changes instanceof Promise) {
        const copy = Buffer.from(response);
        return changes.then((found) => found && withResources(copy, status, found));
      }
      return changes && withResources(response, status, changes);
    };
  };
  return {
    amendment: amend(undefined),
    prepare: (request) => {
      const kernel = readKernel(node, request);
      return kernel && amend(kernel);
    },
  };
}

/** The limits of a container's cgroup, as the kernel has them. */
interface Kernel {
  /** The id of the container. */
  readonly id: string;
  readonly cgroup: CgroupPath;
  readonly limits: CgroupLimits;
}

/**
 * Reads the limits of the container that is asked for. Undefined if it is not known to have run: a cgroup gets its
 * limits only after it has been created.
 */
function readKernel(node: Node, request: Uint8Array): Kernel | undefined {
  try {
    const id = readContainerId(request);
    const cgroup = node.cgroups.stored(id);
    return cgroup === undefined ? undefined : { id, cgroup, limits: node.tree.readLimitsNow(cgroup) };
  } catch {
    // The container may not run. If it does, the amendment of its response reports the error.
    return undefined;
  }
}

/** Field number of `containers_statuses` in ContainerEventResponse (CRI v1). */
const CONTAINERS_STATUSES = 5;

/**
 * Amends the events of GetContainerEvents. Each event contains the statuses of its pod's containers; those of running
 * ones get the kernel's values. kubelet with Evented PLEG uses these statuses instead of ContainerStatus.
 */
export function containerEvents(node: Node): MessageAmendment {
  return (event) => withKernelValues(node, 'ContainerEventResponse', event, CONTAINERS_STATUSES);
}

type Changes = Partial<ReportedResources> | undefined;

/**
 * Returns a message with the kernel's values in the container statuses of a repeated field (KEP-1287, actual values).
 * Undefined if the message does not change, including if it cannot be read, which is counted.
 * @param name of the CRI message
 * @param field number of the repeated field
 */
export function withKernelValues(
  node: Node,
  name: string,
  message: Uint8Array,
  field: number,
): MaybePromise<Uint8Array | undefined> {
  const statuses = orUndefined(node.failOpen, name, () => readContainerStatuses(message, field));
  const running = statuses?.filter(({ state }) => state === ContainerState.CONTAINER_RUNNING) ?? [];
  const changes = running.map((status) => changesOrUndefined(node, status));
  if (changes.some((one) => one instanceof Promise))
    return Promise.all(changes.map((one) => Promise.resolve(one))).then((found) =>
      withChanges(message, running, found),
    );
  return withChanges(message, running, changes as readonly Changes[]);
}

/** Returns the changes of one status. Counts a container whose cgroup cannot be read: the others are still amended. */
function changesOrUndefined(node: Node, status: PlacedStatus): MaybePromise<Changes> {
  const unreadable = (error: unknown): undefined => {
    // Events are late: those of a stopping pod can report containers as running after they have exited.
    if (!isCgroupVanished(error)) node.failOpen('unreadable_state', status.id, error);
  };
  const changes = kernelChanges(node, status, unreadable);
  return changes instanceof Promise ? changes.catch(unreadable) : changes;
}

function withChanges(
  message: Uint8Array,
  statuses: readonly PlacedStatus[],
  changes: readonly Changes[],
): Uint8Array | undefined {
  const changed = statuses.flatMap(({ place }, index) => {
    const resources = changes[index];
    return resources === undefined ? [] : [{ place, resources }];
  });
  return changed.length === 0 ? undefined : withResourcesOfStatuses(message, changed);
}

/**
 * Returns the resources in which the kernel differs from a reported container status. Undefined if the two agree, or
 * the container does not run. Rejects if the backend cannot be asked for the container's cgroup.
 * @param unreadable called if the container's cgroup cannot be read: the runtime's own values are sent then
 * @param read limits that have been read already, if they are those of this container
 */
function kernelChanges(
  node: Node,
  { id, state, resources }: ReportedStatus,
  unreadable: (error: unknown) => void,
  read?: Kernel,
): MaybePromise<Partial<ReportedResources> | undefined> {
  if (state !== ContainerState.CONTAINER_RUNNING) return undefined;
  const isRead = read?.id === id;
  // Both limits of memory have to be from one moment.
  const hasSwap = resources !== undefined && resources.memory_swap_limit_in_bytes !== 0;
  const changesIn = (cgroup: CgroupPath | undefined): Partial<ReportedResources> | undefined => {
    if (cgroup === undefined) return undefined;
    try {
      return kernelResources(node.tree, cgroup, resources, isRead && !hasSwap ? read.limits : undefined);
    } catch (error) {
      unreadable(error);
      return undefined;
    }
  };
  try {
    // kubelet requests the status of each started container, and the backend needs long for a verbose status.
    const known = isRead ? read.cgroup : node.cgroups.known(id);
    return known === undefined ? node.cgroups.find(id).then(changesIn) : changesIn(known);
  } catch (error) {
    unreadable(error);
    return undefined;
  }
}
