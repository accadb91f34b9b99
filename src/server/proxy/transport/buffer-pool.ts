/** Of one slab: several frames of the usual size. */
const SLAB_SIZE = 65_536;
/** Slabs that are kept when nothing is in them. */
const MOST_KEPT = 4;

/** Memory for copies, with the bytes in it that are still to go. */
export interface Slab {
  readonly memory: Buffer;
  used: number;
  /** Copies that have not gone. */
  live: number;
}

/**
 * Copies of what has to wait, side by side in memory that is used again. A buffer for each would be collected late, and what
 * waits for a client that takes a long list window by window would be most of what the process holds.
 */
export class Slabs {
  readonly #free: Slab[] = [];
  /** All copies in them have gone, though perhaps not yet out of the process. */
  #over: Slab[] = [];
  #current: Slab | undefined;

  /** A copy, and where it lies: undefined for one too long to be worth it. */
  copy(bytes: Buffer): { readonly bytes: Buffer; readonly slab: Slab | undefined } {
    if (bytes.length === 0 || bytes.length > SLAB_SIZE / 2) return { bytes: Buffer.from(bytes), slab: undefined };
    let slab = this.#current;
    if (slab === undefined || slab.used + bytes.length > SLAB_SIZE) {
      slab = this.#free.pop() ?? { memory: Buffer.allocUnsafeSlow(SLAB_SIZE), used: 0, live: 0 };
      this.#current = slab;
    }
    const from = slab.used;
    bytes.copy(slab.memory, from);
    slab.used += bytes.length;
    slab.live += 1;
    return { bytes: slab.memory.subarray(from, slab.used), slab };
  }

  /** A copy has been handed on, or thrown away. */
  gone(slab: Slab): void {
    slab.live -= 1;
    if (slab.live > 0) return;
    if (slab === this.#current) this.#current = undefined;
    if (this.#over.length < MOST_KEPT) this.#over.push(slab);
  }

  /** Nothing that was handed on is in this process any more. */
  recycle(): void {
    if (this.#over.length === 0) return;
    for (const slab of this.#over) {
      if (this.#free.length >= MOST_KEPT) break;
      slab.used = 0;
      this.#free.push(slab);
    }
    this.#over = [];
  }
}
