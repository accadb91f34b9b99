/** The bytes of requests and responses that are held for amendments, by one connection or by all, and their limit. */
export class HeldBytes {
  #total = 0;
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

  /** Whether this many further bytes exceed the limit. */
  wouldExceed(bytes: number): boolean {
    return this.#total + bytes > this.#limit || this.#all?.wouldExceed(bytes) === true;
  }
}
