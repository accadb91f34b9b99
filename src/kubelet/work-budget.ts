/** A share of the process's time, saved up while it is not used. Pure: who uses it says what time it is. */

/** What may be used at once, and what comes back in each second, in milliseconds of work. */
const MOST_MS = 200;
const MS_A_SECOND = 100;

export class WorkBudget {
  #left = MOST_MS;
  #at: number;

  /** @param now milliseconds, of any beginning, as all others given here */
  constructor(now: number) {
    this.#at = now;
  }

  /** Work of `ms` was done. It may have been more than there was: then there is none until that has come back. */
  spend(ms: number, now: number): void {
    this.#refill(now);
    this.#left -= ms;
  }

  /** How long to wait before the next piece of work, in milliseconds; 0: not at all. */
  waitAt(now: number): number {
    this.#refill(now);
    return this.#left > 0 ? 0 : Math.ceil(((1 - this.#left) * 1000) / MS_A_SECOND);
  }

  #refill(now: number): void {
    const passed = Math.max(0, now - this.#at);
    this.#at = now;
    this.#left = Math.min(MOST_MS, this.#left + (passed * MS_A_SECOND) / 1000);
  }
}
