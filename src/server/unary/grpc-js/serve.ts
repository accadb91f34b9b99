import {
  Metadata as JsMetadata,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
} from '@grpc/grpc-js';
import { type ClientProcess, type Log, Metadata, steadyDeadline } from '../../../core/index.ts';
import type { RawUnaryHandler } from '../call.ts';
import { endedCode, failureOf, type ReceivedCall, type ServeOptions, serveWithin } from '../serve.ts';
import type { ServerBudget } from '../server-budget.ts';
import type { CallStatus } from '../status.ts';
import { decompressed, ENCODING_HEADER, isEncoding } from './decompress.ts';
import { clientOf } from './sessions.ts';

/** A failure in the form in which grpc-js sends it. */
export interface JsFailure {
  readonly code: number;
  readonly details: string;
  /** The trailers. */
  readonly metadata: JsMetadata;
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

/** Handles a call with its decompressed request. Rejects with OVERLOADED if it exceeds the budget. */
export function withinBudget<Result>(
  call: JsCall,
  budget: ServerBudget,
  handle: () => Promise<Result>,
): Promise<Result> {
  // Noted now: the system's time may change while the call waits.
  deadlineOf(call);
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
  const metadata = new JsMetadata();
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

/** A call of a grpc-js server with one request. */
type JsCall = ServerUnaryCall<Buffer, Buffer> | ServerWritableStream<Buffer, Buffer>;

const deadlines = new WeakMap<object, number>();

/**
 * Returns the deadline of a call, by {@link steadyNow}; Infinity if it has none. grpc-js has it in the system's time.
 * It is converted once, when the call begins: later the system's time may have changed.
 */
export function deadlineOf(call: { getDeadline(): Date | number }): number {
  const known = deadlines.get(call);
  if (known !== undefined) return known;
  const deadline = steadyDeadline(Number(call.getDeadline()));
  deadlines.set(call, deadline);
  return deadline;
}

/** A call of a grpc-js server as its handler sees it. */
export class ServedCall implements ReceivedCall {
  #metadata: Metadata | undefined;
  #abort: AbortController | undefined;

  /** Read at once: grpc-js does not know the connection of a call that has ended. */
  readonly client: ClientProcess | undefined;

  constructor(private readonly call: JsCall) {
    this.client = clientOf(call);
  }

  get path(): string {
    return this.call.getPath();
  }

  get request(): Buffer {
    return this.call.request;
  }

  get metadata(): Metadata {
    this.#metadata ??= Metadata.ofHeaders(this.call.metadata.toHttp2Headers());
    return this.#metadata;
  }

  get deadline(): number {
    return deadlineOf(this.call);
  }

  get cancelled(): boolean {
    return this.call.cancelled;
  }

  get signal(): AbortSignal {
    this.#abort ??= abortOf(this.call);
    return this.#abort.signal;
  }
}

function abortOf(call: JsCall): AbortController {
  const abort = new AbortController();
  if (call.cancelled) abort.abort();
  else call.once('cancelled', () => abort.abort());
  return abort;
}
