import { ContainerState, encode, spliceInto } from '../../runtime/index.ts';
import { type ResizeContext, kernelResources } from '../../sandbox/index.ts';
import type { Amendment } from '../routes.ts';
import { decodeOrUndefined } from './decode.ts';

/** Where the Linux resources are in a ContainerStatusResponse: status, resources, linux. */
const LINUX_RESOURCES = [1, 16, 1];

/**
 * ContainerStatus of a running container: where the runtime's store and the kernel differ, the kernel's values are
 * added to the resources, and win when the client decodes. Otherwise not a byte changes.
 */
export function containerStatus(context: ResizeContext): Amendment {
  return async ({ response }, trace) => {
    const status = decodeOrUndefined(context, 'ContainerStatusResponse', response)?.status ?? undefined;
    if (status?.state !== ContainerState.RUNNING) return undefined;
    trace.fields.container = status.id;
    try {
      const linux = await kernelResources(context, status.id, status.resources?.linux ?? undefined);
      if (linux === undefined) return undefined;
      return spliceInto(response, LINUX_RESOURCES, encode('LinuxContainerResources', linux));
    } catch (error) {
      // It has just ended, say: the runtime's own values stand.
      context.failOpen('unreadable_state', status.id, error);
      return undefined;
    }
  };
}
