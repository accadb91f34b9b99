import type { Backend } from '../../runtime/index.ts';
import { callerOf, decodeUpdate, forwardToTheEnd } from './serving/index.ts';
import type { RawUnaryHandler } from '../../grpc/index.ts';
import { type UpdatePodParts, updatePod } from '../../resize/index.ts';

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
