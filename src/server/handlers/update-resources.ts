import type { Node } from '../../sandbox/index.ts';
import { decodeUpdate, forwardToTheEnd } from './forward.ts';
import type { HandlerCall, RawUnaryHandler } from '../unary/call.ts';
import { type CallerOf, criRequester, updateContainer, updatePod } from '../../sandbox/index.ts';

/** Handles UpdateContainerResources. The runtime gets the unchanged request as one step of the pod's resize. */
export function updateContainerResources(node: Node): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(node.backend, call, trace);
    const request = decodeUpdate(node.failOpen, 'UpdateContainerResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.container = request.container_id.slice(0, 64);
    return updateContainer(node, request, send, callerOf(call));
  };
}

/**
 * Handles UpdatePodSandboxResources: applies it, then forwards it. {@link updatePod} answers for a backend without the
 * call.
 */
export function updatePodSandboxResources(node: Node): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(node.backend, call, trace);
    const request = decodeUpdate(node.failOpen, 'UpdatePodSandboxResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.pod = request.pod_sandbox_id.slice(0, 64);
    return updatePod(node, request, send, callerOf(call));
  };
}

/** Returns the deadline of a call, and who makes it. */
const callerOf = ({ deadline, client }: HandlerCall): Required<CallerOf> => ({
  deadline,
  requester: criRequester(client),
});
