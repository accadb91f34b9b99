import { readFileSync } from 'node:fs';
import { type CancelSignal, type ClientProcess, grpcCodeName, Metadata } from '../../core/index.ts';
import type { CallOptions } from '../../runtime/index.ts';

/**
 * Details that an interceptor reports about its call, for the call's log line. A handler sets fields as soon as they
 * are known, so that the log line of a call that fails midway contains them.
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
  /** Aborts if the call ends unanswered: the client cancels, its connection ends, or the deadline passes. */
  readonly signal: CancelSignal;
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
}: Pick<HandlerCall, 'metadata' | 'deadline' | 'signal'>): CallOptions & { readonly signal: CancelSignal } => ({
  metadata,
  deadline,
  signal,
});

/**
 * Returns the log fields of an intercepted call: ids, method, code, and milliseconds in the shim and in the backend.
 */
export function callFields(
  trace: CallTrace,
  method: string,
  code: number,
  shimMs: number,
): Readonly<Record<string, string | number | boolean | undefined>> {
  return {
    ...trace.fields,
    method,
    code: grpcCodeName(code),
    shimMs: rounded(Math.max(0, shimMs)),
    backendMs: rounded(trace.backendMs),
  };
}

/** Rounds milliseconds to three decimals, that is, to microseconds. */
const rounded = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

/** Headers of gRPC and HTTP themselves, which are no metadata of the caller. A grpc-js server removes the same ones. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  'accept-encoding',
  'content-type',
  'grpc-accept-encoding',
  'grpc-encoding',
  'grpc-timeout',
  'te',
]);

/** Returns the metadata that a request's header fields carry. Pseudo-header fields are left out. */
export function metadataOf(fields: readonly { readonly name: string; readonly value: string }[]): Metadata {
  const metadata = new Metadata();
  for (const { name, value } of fields) if (!OWN_HEADERS.has(name)) metadata.add(name, value);
  return metadata;
}

/** Returns the process with this id. Call it while the client waits: a later process may have the same id. */
export const processOf = (pid: number): ClientProcess => ({ pid, name: nameOf(pid) });

function nameOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').replace(/\n$/, '');
  } catch {
    // It has ended, or /proc does not show it: the id alone is known.
    return undefined;
  }
}
