/** Limits of the bytes that are held. */
export interface HeldLimits {
  /** Bytes that each connection may hold, regardless of the others. */
  readonly reserved: number;
  /** Bytes of all connections beyond those. */
  readonly all: number;
}

/** The bytes of requests and responses that all connections hold for amendments. */
export class AllHeldBytes {
  #total = 0;
  #shared = 0;
  readonly #limits: HeldLimits;

  constructor(limits: HeldLimits) {
    this.#limits = limits;
  }

  get total(): number {
    return this.#total;
  }

  get isFull(): boolean {
    return this.#shared > this.#limits.all;
  }

  /**
   * Whether a connection may hold this many further bytes. Beyond the reserved ones, a connection holds no more than it leaves to the
   * others: one client gets half of what all may hold, and those that do not read leave room for those that do.
   * @param held bytes that the connection holds
   */
  admits(held: number, bytes: number): boolean {
    const after = this.#beyond(held + bytes);
    return after === 0 || after <= this.#limits.all - (this.#shared - this.#beyond(held) + after);
  }

  /** @param held bytes of a connection, which has held `before` until now */
  changed(held: number, before: number): void {
    this.#total += held - before;
    this.#shared += this.#beyond(held) - this.#beyond(before);
  }

  #beyond(held: number): number {
    return Math.max(0, held - this.#limits.reserved);
  }
}

/**
 * The bytes of requests and responses that one connection holds for amendments. What waits for the client beyond its own limits counts
 * too: a response that was held leaves at once, and the client may read it late.
 */
export class HeldBytes {
  #total = 0;
  /** Of these, bytes that wait for the client. */
  #waiting = 0;
  readonly #all: AllHeldBytes;

  constructor(all: AllHeldBytes) {
    this.#all = all;
  }

  get total(): number {
    return this.#total;
  }

  /** @param bytes negative for bytes that are freed */
  add(bytes: number): void {
    const before = this.#total;
    this.#total += bytes;
    this.#all.changed(this.#total, before);
  }

  /** @param bytes that wait for the client now, beyond the limits of what may */
  setWaiting(bytes: number): void {
    if (bytes === this.#waiting) return;
    this.add(bytes - this.#waiting);
    this.#waiting = bytes;
  }

  /** Whether this many further bytes exceed the limits. */
  wouldExceed(bytes: number): boolean {
    return !this.#all.admits(this.#total, bytes);
  }
}
