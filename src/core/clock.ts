/** Time and timers. Injected, so that tests do not have to wait. */
export interface Clock {
  /**
   * Milliseconds since some fixed time. For deadlines, pauses, rates and ages: a change of the system's time does not affect it.
   * {@link steadyNow} of {@link systemClock}.
   */
  now(): number;
  /** Milliseconds since the epoch, by the system's time. For what is shown or stored: it may jump forward and back. */
  wallTime(): number;
  /** Runs `action` after `ms` milliseconds. Returns a function that cancels it. */
  after(ms: number, action: () => void): () => void;
}

/** Milliseconds since the start of the process, by a clock that only goes forward. Timers of Node use the same clock. */
export const steadyNow = (): number => performance.now();

/** Milliseconds since the epoch. Nothing else reads the system's time: an NTP step or an administrator may change it at any time. */
export const wallTime = (): number => Date.now();

/** Converts a deadline in the system's time, which grpc-js has just calculated from a timeout, to {@link steadyNow}. */
export const steadyDeadline = (deadline: number): number => steadyNow() + (deadline - wallTime());

/** The clocks of the system. Pending timers do not keep the process alive. */
export const systemClock: Clock = {
  now: steadyNow,
  wallTime,
  after(ms, action) {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};

/** The maximum delay of a timer: 24 days. A longer one fires immediately. */
const LONGEST_MS = 2 ** 31 - 1;

/** Limits the time of an operation: it ends at a deadline or when its caller cancels it. */
export class TimeLimit {
  readonly #ended = new AbortController();
  readonly #clock: Clock;
  readonly #stopTimer: () => void;
  readonly #caller: AbortSignal | undefined;
  readonly #end = (): void => this.#ended.abort(new Error('the time is up'));

  /**
   * @param deadline in milliseconds, by {@link Clock.now}
   * @param caller aborts when the caller cancels the operation
   */
  constructor(deadline: number, caller?: AbortSignal, clock: Clock = systemClock) {
    const left = deadline - clock.now();
    this.#clock = clock;
    this.#stopTimer = clock.after(Math.min(Math.max(left, 0), LONGEST_MS), this.#end);
    this.#caller = caller;
    caller?.addEventListener('abort', this.#end, { once: true });
    if (left <= 0 || caller?.aborted === true) this.#end();
  }

  get isOver(): boolean {
    return this.#ended.signal.aborted;
  }

  /** Aborts at the deadline or when the caller cancels. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Throws the caller's reason if the caller has cancelled. */
  throwIfAborted(): void {
    this.#caller?.throwIfAborted();
  }

  /** Waits for `work` and rejects if it does. Returns undefined at the end of the time limit, without waiting for the work. */
  async orOver<Result>(work: Promise<Result>): Promise<Result | undefined> {
    const { signal } = this.#ended;
    let leave = (): void => undefined;
    const over = new Promise<undefined>((resolve) => {
      leave = () => resolve(undefined);
      signal.addEventListener('abort', leave, { once: true });
      if (signal.aborted) leave();
    });
    try {
      return await Promise.race([work, over]);
    } catch (error) {
      if (error !== signal.reason) throw error;
      return undefined;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  /** Waits for some milliseconds, or until the end of the time limit if that is earlier. */
  async pause(milliseconds: number): Promise<void> {
    let stop = (): void => undefined;
    await this.orOver(new Promise<void>((resolve) => (stop = this.#clock.after(milliseconds, resolve))));
    stop();
  }

  /** Removes timer and listener. */
  close(): void {
    this.#stopTimer();
    this.#caller?.removeEventListener('abort', this.#end);
  }
}
