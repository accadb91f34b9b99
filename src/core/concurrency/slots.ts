/** At most so many at a time; the others wait in the order in which they came. */
export class Slots {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * Runs `action` once a slot is free, and keeps the slot until it has ended, however long nobody waits for it any more.
   * Rejects with the signal's reason, and never runs it, when that aborts first; without a signal it waits for as long as it takes.
   */
  async run<Result>(action: () => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#turn(signal);
    try {
      return await action();
    } finally {
      this.#release();
    }
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const begin = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.delete(begin);
        reject(signal?.reason as Error);
      };
      this.#waiting.add(begin);
      signal?.addEventListener('abort', leave, { once: true });
    });
  }

  /** The slot goes straight to who has waited longest, so that nobody who comes later gets in between. */
  #release(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}
