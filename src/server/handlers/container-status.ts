import { readContainerStatus, withResources } from '../../runtime/index.ts';
import { type Amendment, orUndefined } from './serving/index.ts';
import { type KernelChangesParts, kernelChanges } from './kernel-values/index.ts';

/**
 * KEP-1287: ContainerStatus reports the actual values. Amends it for a running container. Where the runtime's store and the kernel
 * differ, the kernel's values are appended to the resources, and win when the client decodes them. Otherwise the response is unchanged.
 */
export function containerStatus(context: KernelChangesParts): Amendment {
  return ({ response }, trace) => {
    const status = orUndefined(context, 'ContainerStatusResponse', () => readContainerStatus(response));
    if (status === undefined) return undefined;
    trace.fields.container = status.id;
    // The container may have just exited.
    const unreadable = (error: unknown): void => context.failOpen('unreadable_state', status.id, error);
    const changes = kernelChanges(context, status, unreadable);
    if (changes instanceof Promise) return changes.then((found) => found && withResources(response, found));
    return changes && withResources(response, changes);
  };
}
