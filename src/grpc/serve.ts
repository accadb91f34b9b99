import { type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import type { Log } from '../observe/index.ts';
import type { CallTrace, RawUnaryHandler } from './call.ts';
import { type CallStatus, isUnexpected, statusOf, loggableError } from './status.ts';

/** A call that has ended, for its line in the log. */
export interface EndedCall {
  readonly trace: CallTrace;
  /** What it ended with for its client. */
  readonly code: number;
  readonly elapsedMs: number;
}

export interface ServeOptions {
  readonly log: Log;
  readonly ended: (call: EndedCall) => void;
}

/** Serves one unary call. Never rejects: whatever happens ends as the status of the call. */
export async function serveUnary(
  path: string,
  handler: RawUnaryHandler,
  call: ServerUnaryCall<Buffer, Buffer>,
  respond: sendUnaryData<Buffer>,
  { log, ended }: ServeOptions,
): Promise<void> {
  const start = performance.now();
  const trace: CallTrace = { fields: {}, backendMs: 0 };
  let code: number = status.OK;
  try {
    respond(null, await handler(call, trace));
  } catch (error) {
    const failure = failureOf(error, path, log);
    code = failure.code;
    respond(failure);
  }
  ended({ trace, code: codeFor(call, code), elapsedMs: performance.now() - start });
}

/** The status that a call ends with; a fault of ours is logged with its place. */
export function failureOf(error: unknown, path: string, log: Log): CallStatus {
  if (isUnexpected(error))
    log.error({ method: path, ...loggableError(error) }, 'a call has failed by a fault of the shim');
  return statusOf(error);
}

/** What a call ended with: where the client has gone, that, whatever we answered. */
export function codeFor(call: { readonly cancelled: boolean; getDeadline(): Date | number }, answered: number): number {
  if (!call.cancelled) return answered;
  return Number(call.getDeadline()) <= Date.now() ? status.DEADLINE_EXCEEDED : status.CANCELLED;
}
