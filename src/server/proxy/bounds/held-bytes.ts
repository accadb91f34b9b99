/**
 * The bytes of requests and responses that are held for amendments, by one connection or by all, and their limit. What waits for the client
 * beyond its own limits counts too: a response that was held leaves at once, and the client may read it late.
 */
export class HeldBytes {
  #total = 0;
  /** Of these, bytes that wait for the client. */
  #waiting = 0;
  readonly #limit: number;
  readonly #all: HeldBytes | undefined;

  /**
   * @param limit the most bytes that are held
   * @param all what all connections hold
   */
  constructor(limit: number, all?: HeldBytes) {
    this.#limit = limit;
    this.#all = all;
  }

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that are freed */
  add(bytes: number): void {
    this.#total += bytes;
    this.#all?.add(bytes);
  }

  /** @param bytes that wait for the client now, beyond the limits of what may */
  setWaiting(bytes: number): void {
    if (bytes === this.#waiting) return;
    this.add(bytes - this.#waiting);
    this.#waiting = bytes;
  }

  /** Whether this many further bytes exceed the limit. */
  wouldExceed(bytes: number): boolean {
    return this.#total + bytes > this.#limit || this.#all?.wouldExceed(bytes) === true;
  }
}
