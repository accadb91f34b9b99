import type { ServerUnaryCall, ServerWritableStream } from '@grpc/grpc-js';
import { steadyDeadline } from '../../core/concurrency/index.ts';
import { type ClientProcess, Metadata } from '../../core/grpc/index.ts';
import type { ReceivedCall } from '../serve.ts';
import { clientOf } from './session-owner.ts';

/** A call of a grpc-js server with one request. */
export type JsCall = ServerUnaryCall<Buffer, Buffer> | ServerWritableStream<Buffer, Buffer>;

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

/** A call of a grpc-js server as its handler sees it. */
export class ServedCall implements ReceivedCall {
  readonly #call: JsCall;
  #metadata: Metadata | undefined;
  #abort: AbortController | undefined;

  constructor(call: JsCall) {
    this.#call = call;
  }

  get path(): string {
    return this.#call.getPath();
  }

  get request(): Buffer {
    return this.#call.request;
  }

  get metadata(): Metadata {
    this.#metadata ??= Metadata.ofHeaders(this.#call.metadata.toHttp2Headers());
    return this.#metadata;
  }

  get deadline(): number {
    return deadlineOf(this.#call);
  }

  get cancelled(): boolean {
    return this.#call.cancelled;
  }

  get signal(): AbortSignal {
    this.#abort ??= abortOf(this.#call);
    return this.#abort.signal;
  }

  get client(): ClientProcess | undefined {
    return clientOf(this.#call);
  }
}

function abortOf(call: JsCall): AbortController {
  const abort = new AbortController();
  if (call.cancelled) abort.abort();
  else call.once('cancelled', () => abort.abort());
  return abort;
}
