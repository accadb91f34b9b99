import { steadyNow } from '../../../core/concurrency/index.ts';
import type { Backend } from '../../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { type CallTrace, type HandlerCall, type RawUnaryHandler, inBackend, onBehalfOf } from '../../../grpc/index.ts';

/**
 * Makes an intercepted call at the backend with the same bytes, metadata and deadline. Cancels it if the caller
 * cancels.
 */
export function forward(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  return inBackend(trace, () => backend.call(call.path, call.request, onBehalfOf(call)));
}

/**
 * How long the runtime may take for an update: kubelet's own limit. Without it, a caller without a deadline would hold
 * the pod's lock while a runtime hangs.
 */
const LONGEST_UPDATE_MS = 120_000;

/** Forwards a call that changes a pod. The caller's cancellation does not end it: it is completed or rolled back. */
export function forwardToTheEnd(backend: Backend, call: HandlerCall, trace: CallTrace): Promise<Buffer> {
  const deadline = Math.min(call.deadline, steadyNow() + LONGEST_UPDATE_MS);
  const options = { metadata: call.metadata, deadline };
  return inBackend(trace, () => backend.call(call.path, call.request, options));
}

/**
 * Handles a call whose response is amended but whose messages are compressed. The proxy cannot read those; the gRPC
 * server and client decompress them.
 */
export function amendedHandler(backend: Backend, amendment: Amendment): RawUnaryHandler {
  return async (call, trace) => {
    const response = await forward(backend, call, trace);
    const exchange = { path: call.path, request: call.request, response, backendMs: trace.backendMs };
    return Buffer.from((await amendment(exchange, trace)) ?? response);
  };
}
