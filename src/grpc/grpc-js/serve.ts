import { Metadata, type ServerUnaryCall, type sendUnaryData } from '@grpc/grpc-js';
import type { Log } from '../../observe/index.ts';
import type { RawUnaryHandler } from '../call.ts';
import { type ServeOptions, endedCode, failureOf, serveWithin } from '../serve.ts';
import type { ServerBudget } from '../server-budget.ts';
import type { CallStatus } from '../status.ts';
import { ENCODING_HEADER, decompressed, isEncoding } from './decompress.ts';
import { type JsCall, ServedCall, deadlineOf } from './served-call.ts';
import { takePeer } from './session-owner.ts';

/** A failure in the form in which grpc-js sends it. */
export interface JsFailure {
  readonly code: number;
  readonly details: string;
  /** The trailers. */
  readonly metadata: Metadata;
}

/** Serves one unary call. Never rejects: every error becomes the call's status. */
export function serveUnary(
  handler: RawUnaryHandler,
  call: ServerUnaryCall<Buffer, Buffer>,
  respond: sendUnaryData<Buffer>,
  options: ServeOptions,
): Promise<void> {
  return serveWithin(
    (handle) => withinBudget(call, options.budget, handle),
    handler,
    new ServedCall(call),
    (answer) => (answer instanceof Uint8Array ? respond(null, answer) : respond(jsFailure(answer))),
    options,
  );
}

/** Runs a call's handler with its decompressed request. Rejects with OVERLOADED if the call does not fit into the budget. */
export function withinBudget<Result>(
  call: JsCall,
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
export const jsFailureOf = (error: unknown, path: string, log: Log): JsFailure =>
  jsFailure(failureOf(error, path, log));

function jsFailure({ code, details, trailers }: CallStatus): JsFailure {
  const metadata = new Metadata();
  for (const [name, value] of trailers) {
    if (!name.endsWith('-bin')) metadata.add(name, value);
    else for (const one of value.split(',')) metadata.add(name, Buffer.from(one, 'base64'));
  }
  return { code, details, metadata };
}

/** Returns the code that a call ended with: the client's cancellation or expired deadline, otherwise `answered`. */
export const codeFor = (
  call: { readonly cancelled: boolean; getDeadline(): Date | number },
  answered: number,
): number => endedCode(call.cancelled, deadlineOf(call), answered);
