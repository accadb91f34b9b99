/** Buffers of one size that are kept for a while when they are not in use; more are left to the garbage collector. */
const MOST_KEPT = 4;

/**
 * Memory that is lent and comes back all at once, when the switch has nothing more of it in hand. Large buffers are dear: what
 * Node allocates for each read, and what it takes to collect that, was half of what a list of 500 containers cost.
 */
export class LentMemory {
  readonly #size: number;
  readonly #free: Buffer[] = [];
  #lent: Buffer[] = [];

  /** @param size of each buffer, in bytes */
  constructor(size: number) {
    this.#size = size;
  }

  /** A buffer of the full size, in use until {@link giveBack}. Its bytes are what they were. */
  take(): Buffer {
    const memory = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#size);
    // Those that were lent first may be in use for long, if the peer reads slowly: forgotten here, they live while needed.
    if (this.#lent.length >= MOST_KEPT) this.#lent.shift();
    this.#lent.push(memory);
    return memory;
  }

  /** Nothing that was taken is in use any more, but for what `except` says. */
  giveBack(except?: Buffer): void {
    if (this.#lent.length === 0) return;
    for (const memory of this.#lent) if (memory !== except) this.#free.push(memory);
    this.#lent = except === undefined ? [] : [except];
  }
}
