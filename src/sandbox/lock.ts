/** One at a time for each key; keys side by side. A key takes no room once nobody holds it or waits for it. */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs `action` after all that came before it for `key` have ended, however they ended. Gives what it gives. */
  async run<Result>(key: string, action: () => Promise<Result>): Promise<Result> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const result = before.then(action, action);
    this.#tails.set(key, result);
    try {
      return await result;
    } finally {
      if (this.#tails.get(key) === result) this.#tails.delete(key);
    }
  }
}
