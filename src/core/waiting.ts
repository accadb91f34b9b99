/** Waits with an end: pauses, time limits, and the delays between attempts. */
import { type Clock, systemClock } from './clock.ts';

/** The maximum delay of a timer: 24 days. A longer one fires immediately. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The part of an AbortSignal that calls use. A call of the proxy is its own signal: an AbortSignal costs much more. */
export interface CancelSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
  throwIfAborted(): void;
}

/** Waits for work that continues without its caller. Rejects with the signal's reason once it aborts. */
export async function untilAborted<Result>(work: Promise<Result>, signal: CancelSignal | undefined): Promise<Result> {
  if (signal === undefined) return work;
  const { promise: over, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(signal.reason);
  if (signal.aborted) leave();
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([over, work]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** Waits for work at most `ms` milliseconds. Returns undefined if it has not ended. Rejects as the work does. */
export function within<Result>(ms: number, work: Promise<Result>): Promise<Result | undefined> {
  const { promise: over, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(resolve, Math.min(ms, LONGEST_TIMER_MS), undefined);
  if (ms <= 0) resolve(undefined);
  return Promise.race([work, over]).finally(() => clearTimeout(timer));
}

/** Waits for `ms` milliseconds. Rejects with the signal's reason once it aborts. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const cancel = clock.after(ms, () => resolve(undefined));
  await untilAborted(promise, signal).finally(cancel);
}

/** Returns the delay before the next attempt, in milliseconds: `first`, doubled each time up to `longest`. */
export const backOff = (attempts: number, first: number, longest: number): number =>
  Math.min(longest, first * 2 ** Math.max(0, attempts - 1));

/**
 * Returns a delay whose second half is random, in milliseconds, so that attempts that failed together are not repeated
 * together.
 * @param random 0 to 1, as from Math.random
 */
export const jittered = (ms: number, random: number): number => Math.round(ms / 2 + (ms / 2) * random);

/** Limits the time of an operation: it ends at a deadline or when its caller cancels it. */
export class TimeLimit {
  readonly #ended = new AbortController();
  readonly #stopTimer: () => void;
  readonly #end = (): void => this.#ended.abort(new Error('the time is up'));

  /**
   * @param deadline in milliseconds, by {@link Clock.now}
   * @param caller aborts when the caller cancels the operation
   */
  constructor(
    deadline: number,
    private readonly caller?: AbortSignal,
    private readonly clock: Clock = systemClock,
  ) {
    const left = deadline - clock.now();
    this.#stopTimer = clock.after(Math.min(Math.max(left, 0), LONGEST_TIMER_MS), this.#end);
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
    this.caller?.throwIfAborted();
  }

  /** Waits for `work` and rejects if it does. Returns undefined at the time limit, without further waiting. */
  async orOver<Result>(work: Promise<Result>): Promise<Result | undefined> {
    const { signal } = this.#ended;
    try {
      return await untilAborted(work, signal);
    } catch (error) {
      if (error !== signal.reason) throw error;
      return undefined;
    }
  }

  /** Waits for some milliseconds, or until the end of the time limit if that is earlier. */
  async pause(milliseconds: number): Promise<void> {
    await this.orOver(pause(this.clock, milliseconds, this.#ended.signal));
  }

  /** Removes timer and listener. */
  close(): void {
    this.#stopTimer();
    this.caller?.removeEventListener('abort', this.#end);
  }
}
