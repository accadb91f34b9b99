/** Limits of the calls that the local server handles, of all connections. */
export interface CallLimits {
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

  get count(): number {
    return this.#all;
  }

  /** Takes a place. Returns whether there was one. */
  take(compressed: boolean): boolean {
    if (this.#all >= this.#limits.all) return false;
    if (compressed && this.#compressed >= this.#limits.compressed) return false;
    this.#all += 1;
    if (compressed) this.#compressed += 1;
    return true;
  }

  release(compressed: boolean): void {
    this.#all -= 1;
    if (compressed) this.#compressed -= 1;
  }
}
