/**
 * Runs the results of amendments together, after the already settled promises. If amendments take no longer than that,
 * the results for all responses of one read leave in one write.
 */
export class Results {
  /** Results that wait for the next tick. */
  #waiting: (() => void)[] = [];
  #due = false;

  /** @param run handles an action as one event of the connection */
  constructor(private readonly run: (action: () => void) => void) {}

  /** Whether results run in this turn of the event loop: output for the client is worth holding back until then. */
  get due(): boolean {
    return this.#due;
  }

  /** Runs an action with the other results. */
  add(action: () => void): void {
    this.#waiting.push(action);
    this.runSoon();
  }

  runSoon(): void {
    if (this.#due) return;
    this.#due = true;
    // A tick requested from a microtask runs after all microtasks; a tick requested here would run before them.
    queueMicrotask(() =>
      process.nextTick(() => {
        this.#due = false;
        const results = this.#waiting.splice(0);
        this.run(() => {
          for (const result of results) result();
        });
      }),
    );
  }
}
