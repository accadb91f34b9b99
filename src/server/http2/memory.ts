/** The most buffers that are tracked for reuse. Further ones are left to the garbage collector. */
const MAX_TRACKED = 4;

/**
 * Large buffers of one size that are handed out one by one and reused all at once, when the proxy holds no bytes of
 * them any more. Allocating a buffer for each read and collecting it again was half of the cost of a list of 500
 * containers.
 */
export class ReusedMemory {
  readonly #size: number;
  readonly #free: Buffer[] = [];
  #inUse: Buffer[] = [];

  /** @param size of each buffer, in bytes */
  constructor(size: number) {
    this.#size = size;
  }

  /** Returns a buffer of the full size, in use until {@link giveBack}. Its bytes are not cleared. */
  take(): Buffer {
    const memory = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.#size);
    // If the peer reads slowly, the oldest buffers may stay in use for long. Untracked, they live as long as needed.
    if (this.#inUse.length >= MAX_TRACKED) this.#inUse.shift();
    this.#inUse.push(memory);
    return memory;
  }

  /** Marks all buffers but `except` as free. */
  giveBack(except?: Buffer): void {
    if (this.#inUse.length === 0) return;
    for (const memory of this.#inUse) if (memory !== except) this.#free.push(memory);
    this.#inUse = except === undefined ? [] : [except];
  }
}
