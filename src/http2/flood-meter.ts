import { ConnectionError, ErrorCode } from './errors.ts';

/** Unsolicited frames of one kind per second; see {@link FloodMeter}. */
export const FLOOD_LIMIT = 10_000;

/** Seconds of frames that a pause of reading allows at most: more than fits into the buffers of a socket. */
const MOST_CREDIT_S = 3;

/**
 * Ends the connection of a peer that sends frames which cost the shim work but the peer nothing (PING, SETTINGS,
 * RST_STREAM) at an abusive rate (RFC 9113 10.5). The limit is far above what a busy Go client sends. It only protects
 * CPU time: memory is bounded by backpressure.
 */
export class FloodMeter {
  #count = 0;
  #since = 0;

  /**
   * @param limit frames in any one second
   * @param now milliseconds
   */
  constructor(
    private readonly what: string,
    private readonly limit: number,
    private readonly now: () => number,
  ) {}

  /** Counts one frame. @throws ConnectionError ENHANCE_YOUR_CALM */
  count(): void {
    if (this.#count <= 0) this.#since = this.now();
    this.#count += 1;
    if (this.#count <= this.limit) return;
    if (this.now() - this.#since < 1000)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `too many ${this.what} frames`);
    this.#count = 0;
  }

  /** Starts over: the frames counted so far had a reason. */
  reset(): void {
    this.#count = Math.min(this.#count, 0);
  }

  /** Allows the frames of this many milliseconds without reads, which arrive at once. At most three seconds. */
  credit(ms: number): void {
    const allowed = this.#count - Math.floor((ms * this.limit) / 1000);
    this.#count = Math.max(allowed, -MOST_CREDIT_S * this.limit);
  }
}
