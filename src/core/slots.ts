/** Runs at most `count` actions at a time. Others wait in order of arrival. */
export class Slots {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * Runs `action` when a slot is free and holds the slot until the action has ended, even if its caller has stopped waiting.
   * If the signal aborts before a slot is free, rejects with its reason and does not run the action. Without a signal, waits
   * indefinitely.
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

/** Ends the start of an action: the next one may begin. Further calls have no effect. */
export type Started = () => void;

/**
 * Lets actions begin in order of arrival, a few at a time. Of many that arrive at once, the first reach what they wait for (a
 * runtime, a disk) at once, and not only when all have used the processor. A start counts for a limited time: those that hang delay
 * others, and do not stop them.
 */
export class PacedStarts {
  #starting = 0;
  readonly #waiting = new Set<() => void>();
  readonly #most: number;
  readonly #longestMs: number;

  /**
   * @param most actions that start at the same time
   * @param longestMs how long a start counts
   */
  constructor(most: number, longestMs: number) {
    this.#most = most;
    this.#longestMs = longestMs;
  }

  /** Runs `action` when it is its turn. Its start ends when it calls `started`, at the latest with the action. */
  async run<Result>(action: (started: Started) => Promise<Result>): Promise<Result> {
    if (this.#starting < this.#most) this.#starting += 1;
    else await this.#turn();
    let isStarting = true;
    const started = (): void => {
      if (!isStarting) return;
      isStarting = false;
      clearTimeout(timer);
      this.#starting -= 1;
      this.#next();
    };
    const timer = setTimeout(started, this.#longestMs);
    try {
      return await action(started);
    } finally {
      started();
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
    this.#starting += 1;
    begin();
  }
}
