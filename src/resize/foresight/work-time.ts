import type { Clock } from '../../core/concurrency/index.ts';

/** Measures the time of an activity without the time that it waits. Begins when created. */
export class WorkTime {
  readonly #clock: Clock;
  #since: number | undefined;
  #done = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#since = clock.now();
  }

  /** The time so far, in milliseconds. */
  get ms(): number {
    return this.#done + (this.#since === undefined ? 0 : this.#clock.now() - this.#since);
  }

  setWaiting(isWaiting: boolean): void {
    this.#done = this.ms;
    this.#since = isWaiting ? undefined : this.#clock.now();
  }
}
