import type { ServerUnaryCall, ServerWritableStream } from '@grpc/grpc-js';
import { steadyDeadline } from '../core/concurrency/index.ts';
import type { CallOptions } from '../runtime/index.ts';

/**
 * What an interceptor reports about the call it handles, for the call's log line. A handler sets fields as soon as it
 * knows them, so that a call that fails midway is logged with what was known by then.
 */
export interface CallTrace {
  /** Ids and figures for the log line (`pod`, `container`). Never environment values, annotations or credentials. */
  fields: Record<string, string | number | boolean | undefined>;
  /** Milliseconds spent waiting for the backend, in total. {@link inBackend} updates it. */
  backendMs: number;
}

/**
 * Handles one unary call, from the bytes of the request to the bytes of the response. A rejection becomes the call's
 * status (see status.ts): a ShimError with its reason, a backend's ServiceError unchanged, anything else INTERNAL.
 * Pass {@link onBehalfOf} to calls made for this one, so that they get its metadata, deadline and cancellation.
 */
export type RawUnaryHandler = (call: ServerUnaryCall<Buffer, Buffer>, trace: CallTrace) => Promise<Buffer>;

/**
 * Handles one call with a stream of responses: writes them to the call, and resolves at the end of the stream. A
 * rejection becomes the call's status, as for {@link RawUnaryHandler}.
 */
export type RawStreamHandler = (call: ServerWritableStream<Buffer, Buffer>) => Promise<void>;

/** Runs one call to the backend and adds its duration to the trace, even if it fails. */
export async function inBackend<Result>(trace: CallTrace, run: () => Promise<Result>): Promise<Result> {
  const start = performance.now();
  try {
    return await run();
  } finally {
    trace.backendMs += performance.now() - start;
  }
}

const deadlines = new WeakMap<object, number>();

/**
 * Returns the deadline of a call, by {@link steadyNow}; Infinity if it has none. grpc-js has it in the system's time. It is converted
 * once, when the call begins: later the system's time may have changed.
 */
export function deadlineOf(call: { getDeadline(): Date | number }): number {
  const known = deadlines.get(call);
  if (known !== undefined) return known;
  const deadline = steadyDeadline(Number(call.getDeadline()));
  deadlines.set(call, deadline);
  return deadline;
}

/** Returns the options of a call to the backend on behalf of another call: its metadata, deadline and cancellation. */
export function onBehalfOf(
  call: ServerUnaryCall<Buffer, Buffer> | ServerWritableStream<Buffer, Buffer>,
): CallOptions & { readonly signal: AbortSignal } {
  const abort = new AbortController();
  if (call.cancelled) abort.abort();
  else call.once('cancelled', () => abort.abort());
  return { metadata: call.metadata, deadline: deadlineOf(call), signal: abort.signal };
}
