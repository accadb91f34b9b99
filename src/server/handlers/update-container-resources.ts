import type { Backend } from '../../runtime/index.ts';
import { callerOf, decodeUpdate, forwardToTheEnd } from './serving/index.ts';
import type { RawUnaryHandler } from '../../grpc/index.ts';
import { type UpdateContainerParts, updateContainer } from '../../resize/index.ts';

export type UpdateContainerResourcesParts = UpdateContainerParts;

/** Handles UpdateContainerResources. The runtime gets the unchanged request as one step of the pod's resize. */
export function updateContainerResources(context: UpdateContainerResourcesParts, backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(backend, call, trace);
    const request = decodeUpdate(context, 'UpdateContainerResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.container = request.container_id.slice(0, 64);
    return updateContainer(context, request, send, callerOf(call));
  };
}
