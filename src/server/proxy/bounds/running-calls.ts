/** Limits of the calls that the local server handles, of all connections. */
export interface CallLimits {
  /** Calls that each connection may have, regardless of the others. */
  readonly reserved: number;
  /** Calls of all connections beyond those. */
  readonly all: number;
  /** Calls whose messages are compressed: each costs far more memory and time than its bytes. */
  readonly compressed: number;
}

/** The calls of one connection that have a place. */
export interface OwnCalls {
  all: number;
  compressed: number;
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
   * Takes a place. Returns whether there was one. A connection has no more compressed calls than it leaves places to the others: half of
   * the places if it is the first, a quarter if it is the second, and so on.
   * @param own calls of the connection
   */
  take(own: OwnCalls, compressed: boolean): boolean {
    const isReserved = own.all < this.#limits.reserved;
    if (!isReserved && this.#all >= this.#limits.all) return false;
    if (compressed && own.compressed >= this.#limits.compressed - this.#compressed) return false;
    if (!isReserved) this.#all += 1;
    if (compressed) this.#compressed += 1;
    own.all += 1;
    if (compressed) own.compressed += 1;
    return true;
  }

  /** @param own calls of the connection, with the one that has ended */
  release(own: OwnCalls, compressed: boolean): void {
    own.all -= 1;
    if (own.all >= this.#limits.reserved) this.#all -= 1;
    if (!compressed) return;
    own.compressed -= 1;
    this.#compressed -= 1;
  }
}
