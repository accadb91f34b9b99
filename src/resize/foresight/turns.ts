import type { Clock } from '../../core/concurrency/index.ts';

/** One at a time on the whole node, each followed by a rest: many pods at once take no more of it than one. */
export class Turns {
  #last: Promise<void> = Promise.resolve();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `work` in its turn, and gives what it has taken. The next one waits `restMs` after it. Rejects as the work does. */
  take<Result>(
    work: () => Promise<{ readonly taken: Result; readonly restMs: number }>,
    signal: AbortSignal,
  ): Promise<Result> {
    const turn = this.#last.then(() => {
      signal.throwIfAborted();
      return work();
    });
    this.#last = turn.then(
      ({ restMs }) => new Promise<void>((resolve) => void this.#clock.after(restMs, resolve)),
      () => undefined,
    );
    return turn.then(({ taken }) => taken);
  }
}
