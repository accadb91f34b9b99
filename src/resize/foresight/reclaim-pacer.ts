import type { Clock } from '../../core/concurrency/index.ts';

/** Runs reclaim steps one at a time on the whole node, each followed by a pause, so that many pods use no more than one. */
export class ReclaimPacer {
  #last: Promise<void> = Promise.resolve();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `work` after the steps before it, and returns its result. The next step starts `restMs` later. Rejects as `work` does. */
  run<Result>(
    work: () => Promise<{ readonly result: Result; readonly restMs: number }>,
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
    return turn.then(({ result }) => result);
  }
}
