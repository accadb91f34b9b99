/** Limits of the calls that the local server handles, of all connections. */
export interface CallLimits {
  /** Calls that each connection may have, regardless of the others. */
  readonly reserved: number;
  /** Calls of all connections beyond those. */
  readonly all: number;
  /** Calls whose messages are compressed: each costs far more memory and time than its bytes. */
  readonly compressed: number;
}

/** The number of calls of all connections that the local server handles. */
export class RunningCalls {
  #all = 0;
  #compressed = 0;
  readonly #limits: CallLimits;

  constructor(limits: CallLimits) {
    this.#limits = limits;
  }

  /** Calls beyond the reserved ones. */
  get count(): number {
    return this.#all;
  }

  /** Calls whose messages are compressed. */
  get compressed(): number {
    return this.#compressed;
  }

  /**
   * Takes a place. Returns whether there was one.
   * @param running calls of the connection
   */
  take(running: number, compressed: boolean): boolean {
    const isReserved = running < this.#limits.reserved;
    if (!isReserved && this.#all >= this.#limits.all) return false;
    if (compressed && this.#compressed >= this.#limits.compressed) return false;
    if (!isReserved) this.#all += 1;
    if (compressed) this.#compressed += 1;
    return true;
  }

  /** @param running calls of the connection, without the one that has ended */
  release(running: number, compressed: boolean): void {
    if (running >= this.#limits.reserved) this.#all -= 1;
    if (compressed) this.#compressed -= 1;
  }
}
