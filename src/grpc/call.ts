import type { ClientProcess, Metadata } from '../core/grpc/index.ts';
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

/** A call as its handler sees it, whichever server received it. */
export interface HandlerCall {
  /** For example `/runtime.v1.RuntimeService/UpdateContainerResources`. */
  readonly path: string;
  /** The request message, decompressed and without its gRPC prefix. */
  readonly request: Buffer;
  /** The client's metadata, without the headers of gRPC itself. */
  readonly metadata: Metadata;
  /** When the call has to have ended, by {@link steadyNow}; Infinity without a deadline. */
  readonly deadline: number;
  /** Aborted when the call ends without an answer: the client cancels it, its connection ends, or its deadline passes. */
  readonly signal: AbortSignal;
  /** The process of the client, if it is known. */
  readonly client: ClientProcess | undefined;
}

/**
 * Handles one unary call, from the bytes of the request to the bytes of the response. A rejection becomes the call's
 * status (see status.ts): a ShimError with its reason, a backend's ServiceError unchanged, anything else INTERNAL.
 * Pass {@link onBehalfOf} to calls made for this one, so that they get its metadata, deadline and cancellation.
 */
export type RawUnaryHandler = (call: HandlerCall, trace: CallTrace) => Promise<Buffer>;

/** Runs one call to the backend and adds its duration to the trace, even if it fails. */
export async function inBackend<Result>(trace: CallTrace, run: () => Promise<Result>): Promise<Result> {
  const start = performance.now();
  try {
    return await run();
  } finally {
    trace.backendMs += performance.now() - start;
  }
}

/** Returns the options of a call to the backend on behalf of another call: its metadata, deadline and cancellation. */
export const onBehalfOf = ({
  metadata,
  deadline,
  signal,
}: Pick<HandlerCall, 'metadata' | 'deadline' | 'signal'>): CallOptions & { readonly signal: AbortSignal } => ({
  metadata,
  deadline,
  signal,
});
