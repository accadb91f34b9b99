/** Runs at most `count` actions at a time. Others wait in order of arrival. */
export class Slots {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * Runs `action` when a slot is free and holds the slot until the action has ended, even if its caller has stopped
   * waiting. If the signal aborts before a slot is free, rejects with its reason and does not run the action. Without a
   * signal, waits indefinitely.
   */
  async run<Result>(action: () => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#waitForSlot(signal);
    try {
      return await action();
    } finally {
      this.#release();
    }
  }

  #waitForSlot(signal: AbortSignal | undefined): Promise<void> {
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

  /** Passes the slot to the longest waiting action, so that later arrivals cannot take it first. */
  #release(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}

/**
 * Runs actions in order of arrival, a few at a time. When many arrive at once, the first ones start to wait for their
 * runtime or disk before the others use the processor. Each counts for a limited time, so a hanging action delays
 * others but does not block them.
 */
export class PacedActions {
  #counted = 0;
  readonly #waiting = new Set<() => void>();

  /**
   * @param most actions that count at the same time
   * @param longestMs how long one counts
   */
  constructor(
    private readonly most: number,
    private readonly longestMs: number,
  ) {}

  /** Runs `action` when it is its turn. */
  async run<Result>(action: () => Promise<Result>): Promise<Result> {
    if (this.#counted < this.most) this.#counted += 1;
    else await this.#turn();
    let counts = true;
    const endTurn = (): void => {
      if (!counts) return;
      counts = false;
      clearTimeout(timer);
      this.#counted -= 1;
      this.#next();
    };
    const timer = setTimeout(endTurn, this.longestMs);
    try {
      return await action();
    } finally {
      endTurn();
    }
  }

  #turn(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  /** Lets the next action begin. It counts at once, so that a later arrival cannot take its turn. */
  #next(): void {
    const [begin] = this.#waiting;
    if (begin === undefined) return;
    this.#waiting.delete(begin);
    this.#counted += 1;
    begin();
  }
}
