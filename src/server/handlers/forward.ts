import type { ServerUnaryCall } from '@grpc/grpc-js';
import type { Backend } from '../../runtime/index.ts';
import type { Amendment } from './interceptors.ts';
import { type CallTrace, type RawUnaryHandler, inBackend, onBehalfOf } from '../../grpc/index.ts';

/** Makes an intercepted call at the backend as it came: the same bytes, metadata, deadline, and end when its caller goes. */
export function forward(backend: Backend, call: ServerUnaryCall<Buffer, Buffer>, trace: CallTrace): Promise<Buffer> {
  return inBackend(trace, () => backend.call(call.getPath(), call.request, onBehalfOf(call)));
}

/**
 * How long the runtime may take over an update: kubelet's own limit. A caller without a deadline must not hold the pod's lock
 * for as long as a runtime hangs.
 */
const LONGEST_UPDATE_MS = 120_000;

/** The same for a call that changes a pod: a caller that goes away does not end it, it is finished or undone. */
export function forwardToTheEnd(
  backend: Backend,
  call: ServerUnaryCall<Buffer, Buffer>,
  trace: CallTrace,
): Promise<Buffer> {
  const deadline = Math.min(Number(call.getDeadline()), Date.now() + LONGEST_UPDATE_MS);
  const options = { metadata: call.metadata, deadline };
  return inBackend(trace, () => backend.call(call.getPath(), call.request, options));
}

/**
 * Serves a call whose response is amended, where the frame switch cannot: with compressed messages. gRPC's own server
 * and client undo the compression.
 */
export function amendedHandler(backend: Backend, amendment: Amendment): RawUnaryHandler {
  return async (call, trace) => {
    const response = await forward(backend, call, trace);
    const exchange = { path: call.getPath(), request: call.request, response, backendMs: trace.backendMs };
    return Buffer.from((await amendment(exchange, trace)) ?? response);
  };
}
