/** The bytes of all connections that wait for clients. */
export class QueuedBytes {
  #total = 0;
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that no longer wait */
  add(bytes: number): void {
    this.#total += bytes;
  }

  get isFull(): boolean {
    return this.#total > this.#limit;
  }
}
