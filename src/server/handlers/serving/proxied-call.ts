import type { ClientProcess, Metadata } from '../../../core/grpc/index.ts';
import { type ReceivedCall, metadataOf, processOf } from '../../../grpc/index.ts';
import type { HandledCall } from '../../proxy/index.ts';

/** A call that the proxy has received, as its handler sees it. What few handlers read is made when they do. */
export class ProxiedCall implements ReceivedCall {
  readonly #call: HandledCall;
  readonly #peer: number | undefined;
  #metadata: Metadata | undefined;

  /**
   * @param call of a proxy whose clock is {@link steadyNow}
   * @param peer the process of the client, if it is known
   */
  constructor(call: HandledCall, peer: number | undefined) {
    this.#call = call;
    this.#peer = peer;
  }

  get path(): string {
    return this.#call.path;
  }

  get request(): Buffer {
    return this.#call.request;
  }

  get metadata(): Metadata {
    this.#metadata ??= metadataOf(this.#call.headers);
    return this.#metadata;
  }

  get deadline(): number {
    return this.#call.deadline;
  }

  get cancelled(): boolean {
    return this.#call.cancelled;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get client(): ClientProcess | undefined {
    return this.#peer === undefined ? undefined : processOf(this.#peer);
  }
}
