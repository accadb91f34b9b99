import { ConnectionError, ErrorCode } from '../http2/index.ts';

/**
 * Refuses a peer that sends frames which cost us work and cost it nothing (pings, settings, resets) faster than anyone has
 * a use for. Far above what a busy Go client does; memory is bounded by pausing, so this only guards the processor.
 */
export class FloodMeter {
  #count = 0;
  #since = 0;
  readonly #what: string;
  readonly #limit: number;
  readonly #now: () => number;

  /**
   * @param limit frames in any one second
   * @param now milliseconds
   */
  constructor(what: string, limit: number, now: () => number) {
    this.#what = what;
    this.#limit = limit;
    this.#now = now;
  }

  /** One more. @throws ConnectionError ENHANCE_YOUR_CALM */
  count(): void {
    if (this.#count === 0) this.#since = this.#now();
    this.#count += 1;
    if (this.#count <= this.#limit) return;
    if (this.#now() - this.#since < 1000)
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `too many ${this.#what} frames`);
    this.#count = 0;
  }

  /** There was a reason for those that came. */
  reset(): void {
    this.#count = 0;
  }
}
