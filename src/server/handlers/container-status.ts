import { ContainerState, readContainerStatus, withResources } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { orUndefined } from './decode.ts';
import type { CgroupPath, CgroupTree } from '../../cgroups/index.ts';
import { type FailOpen, type Registry, findCgroup, kernelResources } from '../../sandbox/index.ts';

export interface ContainerStatusParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  /** Where the cgroups of running containers lie, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** Where processes are found: /proc unless a test says otherwise. */
  readonly procRoot?: string;
  /** Counts that a request goes on as it came, and says so once for each id and reason. */
  readonly failOpen: FailOpen;
}

/**
 * ContainerStatus of a running container: where the runtime's store and the kernel differ, the kernel's values are
 * added to the resources, and win when the client decodes. Otherwise not a byte changes.
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
        // It has just ended, say: the runtime's own values stand.
        context.failOpen('unreadable_state', id, error);
        return undefined;
      }
    };
    const known = context.cgroups.get(id);
    return known === undefined ? findCgroup(context, id).then(amend) : amend(known);
  };
}
