import { type Backend, encode, isUnimplemented } from '../../runtime/index.ts';
import { type ResizeContext, updatePod } from '../../sandbox/index.ts';
import type { RawUnaryHandler } from '../call.ts';
import { decodeOrUndefined } from './decode.ts';
import { forwardToTheEnd } from './forward.ts';

/**
 * UpdatePodSandboxResources: carried out here, then passed on. A backend that does not have the call (containerd before
 * 2.3) is answered for: the pod's cgroup, all that there is to change, has been changed.
 */
export function updatePodSandboxResources(context: ResizeContext, backend: Backend): RawUnaryHandler {
  return async (call, trace) => {
    const send = (): Promise<Buffer> => forwardToTheEnd(backend, call, trace);
    const request = decodeOrUndefined(context, 'UpdatePodSandboxResourcesRequest', call.request);
    if (request === undefined) return send();
    trace.fields.pod = request.pod_sandbox_id;
    const tell = async (): Promise<Buffer> => {
      try {
        return await send();
      } catch (error) {
        if (!isUnimplemented(error)) throw error;
        return encode('UpdatePodSandboxResourcesResponse', {});
      }
    };
    return updatePod(context, request, tell, Number(call.getDeadline()));
  };
}
