import { Code, Reason, ShimError, steadyNow } from '../../core/index.ts';
import type { Backend, Messages } from '../../runtime/index.ts';
import {
  type CallerOf,
  criRequester,
  type FailOpen,
  type Node,
  updateContainer,
  updatePod,
} from '../../sandbox/index.ts';
import { type CallTrace, type HandlerCall, inBackend, type RawUnaryHandler } from '../unary/call.ts';
import { decodeOrUndefined } from './forward.ts';

/** Handles UpdateContainerResources. Forwards the unchanged request to the runtime as one step of the pod's resize. */
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

/** Returns the deadline and the caller of a call. */
const callerOf = ({ deadline, client }: HandlerCall): Required<CallerOf> => ({
  deadline,
  requester: criRequester(client),
});

/**
 * Maximum time of the runtime for an update, as in kubelet. Otherwise a caller without a deadline would hold the pod's
 * lock while a runtime hangs.
 */
const LONGEST_UPDATE_MS = 120_000;

/** Forwards a call that changes a pod. The caller's cancellation does not end it: it is completed or rolled back. */
function forwardToTheEnd(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  const deadline = Math.min(call.deadline, steadyNow() + LONGEST_UPDATE_MS);
  const options = { metadata: call.metadata, deadline };
  return inBackend(trace, () => backend.call(call.path, call.request, options));
}

/**
 * The largest accepted update. Kubernetes limits an object's annotations to 256 KiB, and CRI's resources take some
 * hundred bytes. Decoding blocks the event loop: a message of this size that contains only map keys takes 0.1 s, one of
 * 16 MiB (the gRPC limit) 3 s.
 */
const MAX_UPDATE_BYTES = 512 * 1024;

/**
 * Decodes an update of resources like {@link decodeOrUndefined}. Throws INVALID_VALUE if it is too long: forwarded
 * unread, it could set any limit.
 */
export function decodeUpdate<Name extends keyof Messages>(
  failOpen: FailOpen,
  name: Name,
  bytes: Uint8Array,
): Messages[Name] | undefined {
  if (bytes.length <= MAX_UPDATE_BYTES) return decodeOrUndefined(failOpen, name, bytes);
  const message = `${name}: ${bytes.length} bytes: an update has at most ${MAX_UPDATE_BYTES} bytes`;
  throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { asked: String(bytes.length) });
}
