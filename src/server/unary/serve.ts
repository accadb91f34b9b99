import { Code, type Log, loggableError, steadyNow } from '../../core/index.ts';
import type { CallTrace, HandlerCall, RawUnaryHandler } from './call.ts';
import type { ServerBudget } from './server-budget.ts';
import { type CallStatus, isUnexpected, statusOf } from './status.ts';

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

/** A complete call, and whether it has ended without an answer. */
export type ReceivedCall = HandlerCall & { readonly cancelled: boolean };

/**
 * Serves one unary call whose request is complete. Never rejects: every error becomes the call's status.
 * @param respond called once, and not before this function has returned
 */
export const serveReceived = (
  handler: RawUnaryHandler,
  call: ReceivedCall,
  respond: (answer: Buffer | CallStatus) => void,
  options: ServeOptions,
): Promise<void> => {
  const { budget } = options;
  return serveWithin(
    (handle) => budget.run(() => budget.holding(call.request.length, handle)),
    handler,
    call,
    respond,
    options,
  );
};

/**
 * Serves one unary call as {@link serveReceived} does.
 * @param within runs the handler within the budget of the call's server
 */
export async function serveWithin(
  within: (handle: () => Promise<Buffer>) => Promise<Buffer>,
  handler: RawUnaryHandler,
  call: ReceivedCall,
  respond: (answer: Buffer | CallStatus) => void,
  { log, ended }: Pick<ServeOptions, 'log' | 'ended'>,
): Promise<void> {
  const start = performance.now();
  const trace: CallTrace = { fields: {}, backendMs: 0 };
  let code: number = Code.OK;
  try {
    respond(await within(() => handler(call, trace)));
  } catch (error) {
    const failure = hasLeft(call, error) ? CLIENT_LEFT : failureOf(error, call.path, log);
    code = failure.code;
    respond(failure);
  }
  ended({ trace, code: endedCode(call.cancelled, call.deadline, code), elapsedMs: performance.now() - start });
}

/** Whether a handler has stopped because its client has gone: that is no failure. */
export const hasLeft = ({ cancelled, signal }: Pick<ReceivedCall, 'cancelled' | 'signal'>, error: unknown): boolean =>
  cancelled && error === signal.reason;

/** The status of a call whose client has disconnected. No client receives it. */
export const CLIENT_LEFT: CallStatus = { code: Code.CANCELLED, details: 'the client has ended the call', trailers: [] };

/** Returns the status for an error. Logs an internal error with its stack. */
export function failureOf(error: unknown, path: string, log: Log): CallStatus {
  if (isUnexpected(error)) log.error({ method: path, ...loggableError(error) }, 'call failed with internal error');
  return statusOf(error);
}

/** Timers end a call, and count whole milliseconds. */
const TIMER_SLACK_MS = 2;

/**
 * Returns the code that a call ended with: the client's cancellation or expired deadline, otherwise `answered`.
 * @param deadline by {@link steadyNow}
 */
export function endedCode(cancelled: boolean, deadline: number, answered: number): number {
  if (!cancelled) return answered;
  return deadline - TIMER_SLACK_MS <= steadyNow() ? Code.DEADLINE_EXCEEDED : Code.CANCELLED;
}
