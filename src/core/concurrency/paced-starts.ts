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
