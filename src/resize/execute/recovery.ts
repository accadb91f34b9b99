import type { Clock } from '../../core/concurrency/index.ts';

/** A containerd that comes up is asked soon; one that stays as it is, seldom. */
const FIRST_MS = 100;
const LONGEST_MS = 5000;

/**
 * Recovers at each connection to the backend, and again until it has worked: a containerd that has just been started takes
 * connections before it answers for its pods ("server is not initialized yet", 1.6 and 1.7).
 */
export class Recovery {
  readonly #recover: () => Promise<boolean>;
  readonly #clock: Clock;
  /** Counts connections: a later one has a recovery of its own, and ends the tries of those before. */
  #connection = 0;
  #stopTimer: () => void = () => undefined;

  /** @param recover gives whether it has worked; never rejects */
  constructor(recover: () => Promise<boolean>, clock: Clock) {
    this.#recover = recover;
    this.#clock = clock;
  }

  /** There is a new connection. Resolves after the first try. */
  begin(): Promise<void> {
    this.#stopTimer();
    this.#connection += 1;
    return this.#try(this.#connection, FIRST_MS);
  }

  /** No more tries. */
  close(): void {
    this.#connection += 1;
    this.#stopTimer();
  }

  async #try(connection: number, delay: number): Promise<void> {
    if ((await this.#recover()) || connection !== this.#connection) return;
    const longer = Math.min(delay * 2, LONGEST_MS);
    this.#stopTimer = this.#clock.after(delay, () => void this.#try(connection, longer));
  }
}
