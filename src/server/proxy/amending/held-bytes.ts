/** The bytes of requests and responses that a connection holds for amendments, and their limit. */
export class HeldBytes {
  #total = 0;
  readonly #limit: number;

  /** @param limit the most bytes that are held */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that are freed */
  add(bytes: number): void {
    this.#total += bytes;
  }

  /** Whether this many further bytes exceed the limit. */
  wouldExceed(bytes: number): boolean {
    return this.#total + bytes > this.#limit;
  }
}
