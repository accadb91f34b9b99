import { ContainerState, readContainerStatus, withResources } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { orUndefined } from './decode.ts';
import type { CgroupPath, CgroupTree } from '../../cgroups/index.ts';
import { type FailOpen, type Registry, findCgroup, kernelResources } from '../../sandbox/index.ts';

export interface ContainerStatusParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  /** The cgroups of running containers, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** The proc file system. Default /proc; tests set another path. */
  readonly procRoot?: string;
  /** Counts calls that are forwarded unchanged because of an error, and logs each id and reason once. */
  readonly failOpen: FailOpen;
}

/**
 * Amends ContainerStatus of a running container. Where the runtime's store and the kernel differ, the kernel's values
 * are appended to the resources, and win when the client decodes them. Otherwise the response is unchanged.
 */
export function containerStatus(context: ContainerStatusParts): Amendment {
  return ({ response }, trace) => {
    const status = orUndefined(context, 'ContainerStatusResponse', () => readContainerStatus(response));
    if (status?.state !== ContainerState.RUNNING) return undefined;
    const { id } = status;
    trace.fields.container = id;
    const amend = (cgroup: string | undefined): Uint8Array | undefined => {
      if (cgroup === undefined) return undefined;
      try {
        const changes = kernelResources(context, cgroup, status.resources);
        return changes && withResources(response, changes);
      } catch (error) {
        // The container may have just exited. The runtime's own values are sent.
        context.failOpen('unreadable_state', id, error);
        return undefined;
      }
    };
    const known = context.cgroups.get(id);
    return known === undefined ? findCgroup(context, id).then(amend) : amend(known);
  };
}
