export interface StreamLimits {
  /** Streams that each connection may have open, regardless of the others. */
  readonly reserved: number;
  /** Streams of all connections beyond those. */
  readonly shared: number;
}

/** The number of open streams of all connections. */
export class OpenStreams {
  #shared = 0;
  readonly #limits: StreamLimits;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  /** Streams beyond the reserved ones. */
  get shared(): number {
    return this.#shared;
  }

  /** Whether a connection with this many open streams may open another. */
  admits(open: number): boolean {
    return open < this.#limits.reserved || this.#shared < this.#limits.shared;
  }

  /** @param open streams of the connection, with the new one */
  opened(open: number): void {
    if (open > this.#limits.reserved) this.#shared += 1;
  }

  /** @param open streams of the connection, without the one that has ended */
  closed(open: number): void {
    if (open >= this.#limits.reserved) this.#shared -= 1;
  }
}
