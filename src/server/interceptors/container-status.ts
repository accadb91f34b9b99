import { ContainerState, encode } from '../../runtime/index.ts';
import { type ResizeContext, kernelResources } from '../../sandbox/index.ts';
import type { Amendment } from '../routes.ts';
import { decodeOrUndefined } from './decode.ts';

/**
 * ContainerStatus of a running container: where the runtime's store and the kernel differ, the kernel's values are
 * appended, and win when the client decodes. Otherwise not a byte changes.
 */
export function containerStatus(context: ResizeContext): Amendment {
  return async ({ response }) => {
    const status = decodeOrUndefined(context, 'ContainerStatusResponse', response)?.status ?? undefined;
    if (status?.state !== ContainerState.RUNNING) return undefined;
    try {
      const linux = await kernelResources(context, status.id, status.resources?.linux ?? undefined);
      return linux === undefined ? undefined : encode('ContainerStatusResponse', { status: { resources: { linux } } });
    } catch (error) {
      // It has just ended, say: the runtime's own values stand.
      context.failOpen('unreadable_state', status.id, error);
      return undefined;
    }
  };
}
