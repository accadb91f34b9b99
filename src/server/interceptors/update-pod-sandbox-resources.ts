import type { Backend } from '../../runtime/index.ts';
import { type ResizeContext, updatePod } from '../../sandbox/index.ts';
import type { RawUnaryHandler } from '../call.ts';
import { decodeUpdate } from './decode.ts';
import { forwardToTheEnd } from './forward.ts';

/** UpdatePodSandboxResources: carried out here, then passed on; {@link updatePod} answers for a backend without the call. */
export function updatePodSandboxResources(context: ResizeContext, backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(backend, call, trace);
    const request = decodeUpdate(context, 'UpdatePodSandboxResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.pod = request.pod_sandbox_id.slice(0, 64);
    return updatePod(context, request, send, Number(call.getDeadline()));
  };
}
