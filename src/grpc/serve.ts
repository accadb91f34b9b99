import { type ServerUnaryCall, type ServerWritableStream, type sendUnaryData, status } from '@grpc/grpc-js';
import { steadyNow } from '../core/concurrency/index.ts';
import type { Log } from '../observe/index.ts';
import { type CallTrace, type RawStreamHandler, type RawUnaryHandler, deadlineOf } from './call.ts';
import { takePeer } from './session-owner.ts';
import { ENCODING_HEADER, decompressed, isEncoding } from './decompress.ts';
import type { ServerBudget } from './server-budget.ts';
import { type CallStatus, isUnexpected, statusOf, loggableError } from './status.ts';

/** A call that has ended, for its log line. */
export interface EndedCall {
  readonly trace: CallTrace;
  /** The status code that the client got. */
  readonly code: number;
  readonly elapsedMs: number;
}

export interface ServeOptions {
  readonly log: Log;
  /** The budget of the call's server. */
  readonly budget: ServerBudget;
  readonly ended: (call: EndedCall) => void;
}

/** Serves one unary call. Never rejects: every error becomes the call's status. */
export async function serveUnary(
  path: string,
  handler: RawUnaryHandler,
  call: ServerUnaryCall<Buffer, Buffer>,
  respond: sendUnaryData<Buffer>,
  { log, budget, ended }: ServeOptions,
): Promise<void> {
  const start = performance.now();
  const trace: CallTrace = { fields: {}, backendMs: 0 };
  let code: number = status.OK;
  try {
    respond(null, await withinBudget(call, budget, () => handler(call, trace)));
  } catch (error) {
    const failure = failureOf(error, path, log);
    code = failure.code;
    respond(failure);
  }
  ended({ trace, code: codeFor(call, code), elapsedMs: performance.now() - start });
}

/** Serves one call with a stream of responses. Never rejects. Resolves with the status code that the client got. */
export async function serveStream(
  path: string,
  handler: RawStreamHandler,
  call: ServerWritableStream<Buffer, Buffer>,
  { log, budget }: Pick<ServeOptions, 'log' | 'budget'>,
): Promise<number> {
  try {
    await withinBudget(call, budget, () => handler(call));
    call.end();
    return codeFor(call, status.OK);
  } catch (error) {
    // The backend's stream ends with an error when the client has cancelled it: that is no failure.
    if (call.cancelled) return codeFor(call, status.CANCELLED);
    const failure = failureOf(error, path, log);
    call.emit('error', failure);
    return failure.code;
  }
}

/** Runs a call's handler with its decompressed request. Rejects with OVERLOADED if the call does not fit into the budget. */
export function withinBudget<Result>(
  call: ServerUnaryCall<Buffer, Buffer> | ServerWritableStream<Buffer, Buffer>,
  budget: ServerBudget,
  handle: () => Promise<Result>,
): Promise<Result> {
  // Noted now: the system's time may change while the call waits.
  deadlineOf(call);
  takePeer(call);
  const [encoding] = call.metadata.get(ENCODING_HEADER);
  return budget.run(() =>
    budget.holding(call.request.length, async () => {
      if (!isEncoding(encoding)) return handle();
      call.metadata.remove(ENCODING_HEADER);
      const received = call.request;
      call.request = await decompressed(encoding, received, budget);
      return budget.holding(call.request.length, handle);
    }),
  );
}

/** Returns the status for an error. Logs an internal error with its stack. */
export function failureOf(error: unknown, path: string, log: Log): CallStatus {
  if (isUnexpected(error)) log.error({ method: path, ...loggableError(error) }, 'call failed with internal error');
  return statusOf(error);
}

/** grpc-js ends a call by a timer, which counts whole milliseconds. */
const TIMER_SLACK_MS = 2;

/** Returns the code that a call ended with: the client's cancellation or expired deadline, otherwise `answered`. */
export function codeFor(call: { readonly cancelled: boolean; getDeadline(): Date | number }, answered: number): number {
  if (!call.cancelled) return answered;
  return deadlineOf(call) - TIMER_SLACK_MS <= steadyNow() ? status.DEADLINE_EXCEEDED : status.CANCELLED;
}
