/** The messages that a stream holds: to amend a response, or to delay a request. */
import { MESSAGE_PREFIX_SIZE, messagePrefix } from '../../core/index.ts';
import type { Amend } from './interception.ts';
import { MessageBuffer } from './message-buffer.ts';
import { MessageCollector } from './message-collector.ts';

/**
 * The progress of a response:
 * - `collecting`: its message is not complete; nothing has been sent.
 * - `waiting`: the message is complete and held until the interceptor has answered.
 * - `passing`: the rest is forwarded as it arrives.
 */
export type AmendmentState =
  | { readonly kind: 'collecting' }
  | { readonly kind: 'waiting'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'passing' };

const COLLECTING: AmendmentState = { kind: 'collecting' };
const PASSING: AmendmentState = { kind: 'passing' };

/** The state of one call whose response is amended: a copy of its request, and its held response. */
export class Amendment {
  state: AmendmentState = COLLECTING;
  /** Amends the response, if the interceptor has prepared that. */
  prepared: Amend | undefined = undefined;
  readonly request: MessageCollector;
  readonly response: MessageCollector;
  /** Whether any part of the response is held, that is, whether the stream's lane contains a hold. */
  holding = false;
  /** Bytes of the held response that still count against the backend's windows. */
  charged = 0;
  /**
   * The response's HEADERS as received. They wait for the message: sent alone they would cost a write and wake the
   * client.
   */
  head: Buffer | undefined = undefined;
  /** Whether the held DATA was the last frame. */
  last = false;
  /** Bytes that the backend may still send on this stream. Counted apart from the client's window, which gets more. */
  allowance: number;

  /**
   * @param requestLimit the longest request that is copied, in bytes
   * @param responseLimit the longest response that is held, in bytes
   * @param window bytes that the backend may send on the stream at first
   */
  constructor(requestLimit: number, responseLimit: number, window: number) {
    this.request = new MessageCollector(requestLimit);
    this.response = new MessageCollector(responseLimit);
    this.allowance = window;
  }

  /** Returns the held bytes as received, or the amended message in their place. */
  release(amended: Uint8Array | undefined): Buffer[] {
    if (amended !== undefined) return messageParts(amended);
    return this.response.size === 0 ? [] : [this.response.bytes];
  }

  /** Stops the timer and frees what was held. */
  finish(): void {
    if (this.state.kind === 'waiting') clearTimeout(this.state.timer);
    this.state = PASSING;
    this.prepared = undefined;
    this.holding = false;
    this.head = undefined;
    this.charged = 0;
    this.request.clear();
    this.response.clear();
  }
}

/** Returns a message and its prefix. */
export function messageParts(message: Uint8Array): Buffer[] {
  const bytes = Buffer.isBuffer(message) ? message : Buffer.from(message.buffer, message.byteOffset, message.length);
  return [messagePrefix(bytes.length), bytes];
}

/** A message that has been given to the interceptor, which has not answered. */
export interface WaitingMessage {
  /** With its gRPC prefix. */
  readonly bytes: Buffer;
  readonly timer: NodeJS.Timeout;
}

/** The state of one stream whose messages are amended one by one. */
export class MessageAmendment {
  readonly buffer: MessageBuffer;
  waiting: WaitingMessage | undefined = undefined;
  /** Whether the stream's lane contains a hold: any bytes are held. */
  holding = false;
  /** The oldest held bytes whose window was returned to the backend: they do not count against its windows. */
  credited = 0;
  /** The server's last DATA, its trailers or its reset have come. */
  ended = false;
  /** Whether DATA was the last frame. */
  last = false;
  /** Bytes that the backend may still send on this stream. Counted apart from the client's window, which gets more. */
  allowance: number;

  /**
   * @param limit the longest message that is amended, in bytes
   * @param window bytes that the backend may send on the stream at first
   */
  constructor(limit: number, window: number) {
    this.buffer = new MessageBuffer(limit);
    this.allowance = window;
  }

  /** Bytes that have come and have not been sent on. */
  get held(): number {
    return this.buffer.size + (this.waiting?.bytes.length ?? 0);
  }

  /** Held bytes that count against the backend's windows. */
  get charged(): number {
    return this.held - this.credited;
  }
}

/** Maximum number of DATA frames of a delayed request. Clients send a short request in one frame. */
const MOST_FRAMES = 16;

/** The state of one request that is held back: its DATA waits, while its headers have been forwarded. */
export class RequestDelay {
  readonly request: MessageCollector;
  /** The timeout of the call (grpc-timeout) in milliseconds; Infinity without one. */
  readonly timeoutMs: number;
  /** Whether the interceptor has been asked. */
  isAsked = false;
  isOver = false;
  /** Called when the call ends. */
  onEnd: (() => void) | undefined;
  #frames: Buffer[] = [];
  #size = 0;
  readonly #limit: number;

  /** @param limit the longest request that is held back, in bytes */
  constructor(limit: number, timeoutMs: number) {
    this.#limit = limit + MESSAGE_PREFIX_SIZE;
    this.request = new MessageCollector(limit);
    this.timeoutMs = timeoutMs;
  }

  /**
   * Whether a further frame may be held: padding counts as well.
   * @param size what flow control counts of it
   */
  hasRoomFor(size: number): boolean {
    return this.#frames.length < MOST_FRAMES && this.#size + size <= this.#limit;
  }

  /**
   * @param frame a copy
   * @param size what flow control counts of it
   */
  hold(frame: Buffer, size: number): void {
    this.#frames.push(frame);
    this.#size += size;
  }

  /** Ends the delay. Returns the frames, and what flow control counts of them. */
  end(): { readonly frames: readonly Buffer[]; readonly size: number } {
    const held = { frames: this.#frames, size: this.#size };
    this.isOver = true;
    this.#frames = [];
    this.#size = 0;
    this.request.clear();
    return held;
  }
}
