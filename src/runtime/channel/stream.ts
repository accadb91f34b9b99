import { Code, MESSAGE_PREFIX_SIZE, type Metadata, MiB } from '../../core/index.ts';
import type { HeaderField } from '../../http2/index.ts';
import { httpOutcome, malformed, metadataOf, type Outcome, resetOutcome, trailersOutcome, valueOf } from './outcome.ts';
import { MessageReader, type ResponseMemory } from './response.ts';

/** Bytes that the server may send on a stream before they are read. */
export const STREAM_WINDOW = MiB;

/** A call on a connection: the state of its request and its response. */
export class Stream {
  /** Bytes that the server accepts. Negative after it has lowered its SETTINGS_INITIAL_WINDOW_SIZE. */
  sendWindow: number;
  /** Bytes of the request that were sent, the prefix of the message included. */
  sent = 0;
  /** Bytes that the server may still send. */
  receiveWindow = STREAM_WINDOW;
  readonly #reader: MessageReader;
  /** 0 before the header fields of the response. */
  #httpStatus = 0;
  #hasResponse = false;

  constructor(
    readonly id: number,
    readonly call: Call,
    sendWindow: number,
    memory: ResponseMemory,
    longestMessage: number,
  ) {
    this.sendWindow = sendWindow;
    this.#reader = new MessageReader(memory, longestMessage);
  }

  /** The response, once it is complete. */
  get message(): Buffer | undefined {
    return this.#reader.message;
  }

  /** Whether header fields arrived, even interim: rules out transparent retries (A6 of grpc). */
  get hasResponse(): boolean {
    return this.#hasResponse;
  }

  /** Takes a header block: header fields or trailers. Returns how the call ends, if it ends. */
  headers(fields: readonly HeaderField[], endStream: boolean): Outcome | undefined {
    this.#hasResponse = true;
    if (this.#httpStatus !== 0) {
      return endStream ? this.#ended(fields) : malformed('more header fields inside it');
    }
    const httpStatus = Number(valueOf(fields, ':status'));
    if (!Number.isInteger(httpStatus) || httpStatus < 100 || httpStatus > 999) return malformed('no HTTP status');
    if (httpStatus < 200) return endStream ? malformed(`it ends with HTTP status ${httpStatus}`) : undefined;
    this.#httpStatus = httpStatus;
    if (endStream) return this.#ended(fields);
    const type = valueOf(fields, 'content-type') ?? '';
    if (httpStatus !== 200 || type.startsWith('application/grpc')) return undefined;
    return { code: Code.UNKNOWN, details: `received unexpected content-type ${JSON.stringify(type)}` };
  }

  /** Takes bytes of the response. Returns how the call ends, if they end it. */
  data(bytes: Buffer): Outcome | undefined {
    if (this.#httpStatus === 0) return malformed('data before the header fields');
    // The page of an HTTP error is not read: its trailers may have a gRPC status.
    return this.#httpStatus === 200 ? this.#reader.take(bytes) : undefined;
  }

  /** Returns how a call ends whose response ends without trailers. */
  endedWithoutTrailers(): Outcome {
    if (this.#httpStatus !== 200) return httpOutcome(this.#httpStatus);
    return { code: Code.INTERNAL, details: 'the backend ended the call without a gRPC status' };
  }

  /** Returns the outcome of a call whose stream the server resets. Prefers an HTTP error to the error code. */
  reset(errorCode: number): Outcome {
    const isHttpError = this.#httpStatus !== 0 && this.#httpStatus !== 200;
    return isHttpError ? httpOutcome(this.#httpStatus) : resetOutcome(errorCode);
  }

  /** Frees what the response has occupied. */
  close(): void {
    this.#reader.close();
  }

  #ended(trailers: readonly HeaderField[]): Outcome {
    const outcome = trailersOutcome(trailers, this.#httpStatus);
    if (outcome.code !== Code.OK || this.#reader.message !== undefined) return outcome;
    const what = this.#reader.hasBegun ? 'an incomplete message' : 'no message';
    const details = `the backend answered a unary call with ${what}`;
    return { code: Code.INTERNAL, details, metadata: metadataOf(trailers) };
  }
}

/** The connection that a call runs on. */
export interface Runner {
  /** Ends the call there. */
  cancel(call: Call): void;
}

/** A unary call: its request and its connection. */
export class Call {
  /** When it began, by steadyNow. */
  readonly start: number;
  /** Time by which the call must be running, by steadyNow. Infinity if it may wait until its deadline. */
  connectBy = Infinity;
  /** Whether a server has refused it before. It is sent again once. */
  isRetried = false;
  /** Undefined while it waits for a connection. */
  runner: Runner | undefined;
  /** On the connection that it runs on. */
  streamId = 0;

  /**
   * @param deadline when it has to have ended, by steadyNow
   * @param ended called once
   */
  constructor(
    readonly path: string,
    readonly message: Buffer,
    readonly metadata: Metadata | undefined,
    readonly deadline: number,
    now: number,
    readonly ended: (outcome: Outcome, message: Buffer | undefined) => void,
  ) {
    this.start = now;
  }

  /** Bytes to send, the prefix of the message included. */
  get size(): number {
    return MESSAGE_PREFIX_SIZE + this.message.length;
  }

  /** Returns how it ends at its deadline. @param now by steadyNow */
  expired(now: number): Outcome {
    const seconds = ((now - this.start) / 1000).toFixed(3);
    return { code: Code.DEADLINE_EXCEEDED, details: `Deadline exceeded after ${seconds}s` };
  }

  /** Time of the next check: the deadline or the latest start. */
  get due(): number {
    return Math.min(this.deadline, this.connectBy);
  }
}
