/** The connections that are closed and wait for their peers to close too. They still hold their buffers, so their number is limited. */
export class Lingering {
  readonly #connections = new Set<() => void>();
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get count(): number {
    return this.#connections.size;
  }

  /**
   * Adds a connection. Destroys the one that has waited longest if there are too many. Returns whether it did.
   * @param destroy has to call {@link delete}
   */
  add(destroy: () => void): boolean {
    this.#connections.add(destroy);
    if (this.#connections.size <= this.#limit) return false;
    const [oldest] = this.#connections;
    oldest?.();
    return true;
  }

  delete(destroy: () => void): void {
    this.#connections.delete(destroy);
  }
}
