/** The maximum budget, in milliseconds of work. */
const MAX_MS = 200;
/**
 * The maximum that one piece of work counts, in milliseconds. On a machine with too few processors, a piece takes much
 * longer than its CPU time. Counting all of it would delay the next piece by ten times as much: kubelet's decreases
 * would wait.
 */
const MAX_PIECE_MS = 400;
/** The refill per second, in milliseconds of work. */
const MS_PER_SECOND = 100;

/** A budget of the process's time (token bucket), which refills while it is unused. Pure: callers pass the time. */
export class WorkBudget {
  #left = MAX_MS;
  #at: number;

  /** @param now in milliseconds since any fixed time, as in the other methods */
  constructor(now: number) {
    this.#at = now;
  }

  /**
   * Takes `ms` of work from the budget, at most {@link MAX_PIECE_MS}. It may exceed the remaining budget: no work is
   * allowed then until the budget is refilled.
   */
  spend(ms: number, now: number): void {
    this.#refill(now);
    this.#left -= Math.min(ms, MAX_PIECE_MS);
  }

  /** Returns how long to wait before the next work, in milliseconds; 0 if work is allowed now. */
  waitAt(now: number): number {
    this.#refill(now);
    return this.#left > 0 ? 0 : Math.ceil(((1 - this.#left) * 1000) / MS_PER_SECOND);
  }

  #refill(now: number): void {
    const passed = Math.max(0, now - this.#at);
    this.#at = now;
    this.#left = Math.min(MAX_MS, this.#left + (passed * MS_PER_SECOND) / 1000);
  }
}
