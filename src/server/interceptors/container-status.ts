import { ContainerState, readContainerStatus, withResources } from '../../runtime/index.ts';
import { type ResizeContext, findCgroup, kernelResources } from '../../sandbox/index.ts';
import type { Amendment } from '../routes.ts';
import { orUndefined } from './decode.ts';

/**
 * ContainerStatus of a running container: where the runtime's store and the kernel differ, the kernel's values are
 * added to the resources, and win when the client decodes. Otherwise not a byte changes.
 */
export function containerStatus(context: ResizeContext): Amendment {
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
