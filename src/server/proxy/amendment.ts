import { MESSAGE_PREFIX_SIZE, messagePrefix } from './grpc.ts';
import { MessageCollector } from './message-collector.ts';

/** A message up to this is sent as one piece with its prefix: cheaper than a gathered write. */
const JOIN_UP_TO = 16_384;

/**
 * How far a response is:
 * - `collecting`: its message is not whole; nothing has been sent.
 * - `asking`: the message is whole and held until we know what it shall be.
 * - `passing`: the rest goes as it comes.
 */
export type AmendmentState =
  | { readonly kind: 'collecting' }
  | { readonly kind: 'asking'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'passing' };

/** The request that is read on the way, and the response that is held. */
export class Amendment {
  state: AmendmentState = { kind: 'collecting' };
  readonly request: MessageCollector;
  readonly response: MessageCollector;
  /** Whether anything of the response is held, and so a hold is in the stream's lane. */
  holding = false;
  /** Bytes of the response that are held and that the backend's windows are still charged for. */
  charged = 0;
  /**
   * The response's HEADERS, as they came. They wait for the message: sent before it they would cost a write, and wake the
   * client, for nothing.
   */
  head: Buffer | undefined = undefined;
  /** Whether the held DATA was the last frame. */
  last = false;
  /** Bytes that the backend may still send on this stream; counted apart from the client's window, which gets more. */
  allowance: number;

  /**
   * @param requestLimit bytes of a request that is kept
   * @param responseLimit bytes of a response that is held
   * @param window bytes that the backend may send on the stream at first
   */
  constructor(requestLimit: number, responseLimit: number, window: number) {
    this.request = new MessageCollector(requestLimit);
    this.response = new MessageCollector(responseLimit);
    this.allowance = window;
  }

  /** The held bytes as they came, or another message in their place. */
  release(amended: Uint8Array | undefined): Buffer[] {
    if (amended === undefined) return this.response.parts;
    const prefix = messagePrefix(amended.length);
    const total = MESSAGE_PREFIX_SIZE + amended.length;
    if (total <= JOIN_UP_TO) return [Buffer.concat([prefix, amended], total)];
    return [prefix, Buffer.from(amended.buffer, amended.byteOffset, amended.length)];
  }

  /** Ends the wait, and lets go of what was kept. */
  finish(): void {
    if (this.state.kind === 'asking') clearTimeout(this.state.timer);
    this.state = { kind: 'passing' };
    this.holding = false;
    this.head = undefined;
    this.charged = 0;
    this.request.clear();
    this.response.clear();
  }
}
