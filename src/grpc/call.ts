import type { ServerUnaryCall } from '@grpc/grpc-js';
import type { CallOptions } from '../runtime/index.ts';

/**
 * What an interceptor tells about the call it handles: the log line of the call is made from it. A handler sets it as it
 * learns things, so that a call that fails half-way is logged with what was known until then.
 */
export interface CallTrace {
  /** Ids and figures for the log line (`pod`, `container`). Never environment values, annotations or credentials. */
  fields: Record<string, string | number | boolean | undefined>;
  /** Milliseconds spent waiting for the backend, summed over all calls to it. {@link inBackend} keeps it. */
  backendMs: number;
}

/**
 * Handles one unary call, from the bytes of the request to the bytes of the response. A rejection becomes the call's
 * status (see status.ts): a ShimError with its reason, a backend's ServiceError as it came, anything else INTERNAL.
 * Give {@link onBehalfOf} to calls made for this one: metadata, deadline and cancellation go along.
 */
export type RawUnaryHandler = (call: ServerUnaryCall<Buffer, Buffer>, trace: CallTrace) => Promise<Buffer>;

/** Runs one call to the backend and adds its duration to the trace, also when it fails. */
export async function inBackend<Result>(trace: CallTrace, run: () => Promise<Result>): Promise<Result> {
  const start = performance.now();
  try {
    return await run();
  } finally {
    trace.backendMs += performance.now() - start;
  }
}

/** What a call to the backend takes over from the call that it is made for: metadata, deadline and cancellation. */
export function onBehalfOf(call: ServerUnaryCall<Buffer, Buffer>): CallOptions {
  const abort = new AbortController();
  if (call.cancelled) abort.abort();
  else call.once('cancelled', () => abort.abort());
  return { metadata: call.metadata, deadline: call.getDeadline(), signal: abort.signal };
}
