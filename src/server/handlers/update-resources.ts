import type { Backend } from '../../runtime/index.ts';
import { decodeUpdate, forwardToTheEnd } from './forward.ts';
import type { HandlerCall, RawUnaryHandler } from '../unary/call.ts';
import {
  type CallerOf,
  type UpdateContainerParts,
  type UpdatePodParts,
  criRequester,
  updateContainer,
  updatePod,
} from '../../sandbox/index.ts';

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

export type UpdatePodSandboxResourcesParts = UpdatePodParts;

/**
 * Handles UpdatePodSandboxResources: applies it, then forwards it. {@link updatePod} answers for a backend without the
 * call.
 */
export function updatePodSandboxResources(context: UpdatePodSandboxResourcesParts, backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(backend, call, trace);
    const request = decodeUpdate(context, 'UpdatePodSandboxResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.pod = request.pod_sandbox_id.slice(0, 64);
    return updatePod(context, request, send, callerOf(call));
  };
}

/** Returns the deadline of a call, and who makes it. */
const callerOf = ({ deadline, client }: HandlerCall): Required<CallerOf> => ({
  deadline,
  requester: criRequester(client),
});
