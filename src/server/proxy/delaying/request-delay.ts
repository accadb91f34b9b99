import { MessageCollector } from '../amending/index.ts';
import { MESSAGE_PREFIX_SIZE } from '../../../core/grpc/index.ts';

/** Most DATA frames of a request that is held back. Clients send a short one in one frame. */
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
