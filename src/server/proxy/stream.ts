import type { CancelSignal } from '../../core/index.ts';
import type { Frame, HeaderField } from '../../http2/index.ts';
import type { Amendment, MessageAmendment, RequestDelay } from './held-messages.ts';
import type { HandledCall, Outcome } from './interception.ts';
import type { Lane, LaneSource } from './lane.ts';
import type { CollectedRequest } from './shared-budget.ts';

/** The server of handled streams: the proxy or a connection to the local server. Source of their down lanes. */
export interface LocalPeer extends LaneSource {
  /** Bytes that wait for it. */
  readonly waiting: number;
  /** Takes the request's headers. */
  open(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void;
  /** Takes DATA of the request. */
  request(stream: LocalStream, frame: Frame): void;
  /** The client has sent trailers, which no handler reads: they end the request. */
  ended(stream: LocalStream): void;
  /** The stream ends before its answer, with this HTTP/2 error code. */
  cancel(stream: LocalStream, code: number): void;
  /** Drops what waits for a stream that ends. */
  discard(stream: LocalStream): void;
}

/**
 * The common part of all streams. A class, because one is made for every call: object literals cost microseconds more.
 */
abstract class StreamBase {
  /** The client has sent its last frame. */
  clientEnded = false;
  /** The server's last frame has been received. It may not have been sent to the client yet. */
  serverEnded = false;
  /** The server's last frame has been sent to the client. */
  delivered = false;
  /** The server has reset the stream: what the client still sends is dropped. */
  reset = false;
  /** Response headers have been sent to the client. */
  answered = false;
  /** How the stream ends, as far as known. */
  outcome: Outcome = 'cancelled';
  /** The grpc-status, if the observer wants it. */
  status: number | undefined = undefined;
  readonly id: number;
  /** The `:path` of its request; empty if there was none. */
  readonly path: string;
  /** Milliseconds, by the connection's clock. */
  readonly openedAt: number;
  /** When the request of an unhandled call was forwarded: later than {@link openedAt} if held back. */
  forwardedAt: number;
  /** Holds the request back. */
  delay: RequestDelay | undefined = undefined;
  /** Read-ahead that the backend has been granted for it. */
  reserved = 0;
  /** Unsent bytes of the backend's first message. Negative once more came. Unknown before the first DATA. */
  expected: number | undefined = undefined;
  /** Towards the client. */
  readonly down: Lane;

  constructor(path: string, openedAt: number, down: Lane) {
    this.id = down.id;
    this.path = path;
    this.openedAt = openedAt;
    this.forwardedAt = openedAt;
    this.down = down;
  }
}

/** A stream that is forwarded to the backend and back unchanged. */
export class PassStream extends StreamBase {
  readonly kind = 'pass';
  /** Bytes the backend may send beyond the client's window. Negative if the latter is near the maximum. */
  ahead: number;

  constructor(path: string, openedAt: number, down: Lane, ahead: number) {
    super(path, openedAt, down);
    this.ahead = ahead;
  }
}

/** A stream that is forwarded to the backend; its response is held until it is amended. */
export class AmendStream extends StreamBase {
  readonly kind = 'amend';
  readonly amendment: Amendment;

  constructor(path: string, openedAt: number, down: Lane, amendment: Amendment) {
    super(path, openedAt, down);
    this.amendment = amendment;
  }
}

/** A stream that is forwarded to the backend; each message of its response is held until it is amended. */
export class MessageAmendStream extends StreamBase {
  readonly kind = 'amend-each';
  readonly amendment: MessageAmendment;

  constructor(path: string, openedAt: number, down: Lane, amendment: MessageAmendment) {
    super(path, openedAt, down);
    this.amendment = amendment;
  }
}

/** A stream that is handled in this process. */
export class LocalStream extends StreamBase {
  readonly kind = 'handle';
  /** Its server. The proxy passes the stream to the local server if it is not plain. */
  peer: LocalPeer;
  /** Whether it is a unary call whose messages are compressed. */
  readonly compressed: boolean;
  /** Whether it has a place among the handled calls. */
  readonly admitted: boolean;
  /** Its request, if that came in several frames and waits here for the last one. */
  collected: CollectedRequest | undefined = undefined;
  /** Its request, if that came in one frame whose read is still being handled. */
  content: Buffer | undefined = undefined;
  /** The call, if the proxy itself serves it. */
  call: RunningCall | undefined = undefined;
  /** The headers of {@link call}, for the local server. */
  fields: readonly HeaderField[] = [];

  constructor(
    path: string,
    openedAt: number,
    down: Lane,
    { peer, compressed, admitted }: Pick<LocalStream, 'peer' | 'compressed' | 'admitted'>,
  ) {
    super(path, openedAt, down);
    this.peer = peer;
    this.compressed = compressed;
    this.admitted = admitted;
  }
}

/** A stream that the client opened and that has not ended. */
export type Stream = PassStream | AmendStream | MessageAmendStream | LocalStream;

/** Records that the server's last frame has been received. */
export function serverEnded(stream: Stream): void {
  stream.serverEnded = true;
  stream.outcome = 'answered';
}

const NOTHING = Buffer.alloc(0);

/** A call that is handled in the proxy, from its headers to its end. */
export class RunningCall implements HandledCall, CancelSignal {
  request: Buffer = NOTHING;
  /** It has ended without an answer. */
  cancelled = false;
  #reason: Error | undefined;
  /** Its answer has been passed to the stream. */
  answered = false;
  /** Ends it at its deadline. */
  timer: NodeJS.Timeout | undefined = undefined;
  /** Called when it is cancelled. */
  readonly #listeners = new Set<() => void>();

  /** @param deadline by the connection's clock */
  constructor(
    readonly path: string,
    readonly headers: readonly HeaderField[],
    readonly deadline: number,
  ) {}

  get signal(): CancelSignal {
    return this;
  }

  /** The error with which all that its handler waits for is rejected. */
  get reason(): Error | undefined {
    if (this.cancelled) this.#reason ??= new Error('the call has ended without an answer');
    return this.#reason;
  }

  get aborted(): boolean {
    return this.cancelled;
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.delete(listener);
  }

  throwIfAborted(): void {
    if (this.reason !== undefined) throw this.reason;
  }

  cancel(): void {
    if (this.cancelled) return;
    this.cancelled = true;
    for (const listener of this.#listeners) listener();
    this.#listeners.clear();
  }
}
