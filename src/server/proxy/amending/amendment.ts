import { MESSAGE_PREFIX_SIZE, messagePrefix } from '../../../core/grpc/index.ts';
import { MessageCollector } from './message-collector.ts';

/** Up to this many bytes, joining a message with its prefix costs less than a gathered write. */
const JOIN_LIMIT = 16_384;

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

/** The state of one call whose response is amended: a copy of its request, and its held response. */
export class Amendment {
  state: AmendmentState = { kind: 'collecting' };
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
    if (amended === undefined) return this.response.size === 0 ? [] : [this.response.bytes];
    const prefix = messagePrefix(amended.length);
    const total = MESSAGE_PREFIX_SIZE + amended.length;
    if (total <= JOIN_LIMIT) return [Buffer.concat([prefix, amended], total)];
    return [prefix, Buffer.from(amended.buffer, amended.byteOffset, amended.length)];
  }

  /** Stops the timer and frees what was held. */
  finish(): void {
    if (this.state.kind === 'waiting') clearTimeout(this.state.timer);
    this.state = { kind: 'passing' };
    this.holding = false;
    this.head = undefined;
    this.charged = 0;
    this.request.clear();
    this.response.clear();
  }
}
