/** A connection that is closed and whose peer is not. */
export interface ClosedConnection {
  /** Bytes for the client that the kernel has not taken. */
  readonly unsent: number;
  /** Closes the sockets at once. Has to call {@link Lingering.delete}. */
  destroy(): void;
}

/** The connections that are closed and wait for their peers to close too. They still hold their buffers, so their number is limited. */
export class Lingering {
  readonly #connections = new Set<ClosedConnection>();
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get count(): number {
    return this.#connections.size;
  }

  /**
   * Adds a connection. If there are too many, destroys the one that has waited longest of those that have sent everything, or
   * of all if none has. Returns whether it did.
   */
  add(connection: ClosedConnection): boolean {
    this.#connections.add(connection);
    if (this.#connections.size <= this.#limit) return false;
    this.#longest()?.destroy();
    return true;
  }

  delete(connection: ClosedConnection): void {
    this.#connections.delete(connection);
  }

  #longest(): ClosedConnection | undefined {
    const all = [...this.#connections];
    return all.find(({ unsent }) => unsent === 0) ?? all[0];
  }
}
