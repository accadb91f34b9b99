import { setTimeout as delay } from 'node:timers/promises';

/** What setTimeout takes: 24 days. A longer one would fire at once. */
const LONGEST_MS = 2 ** 31 - 1;

/** The end of an undertaking: when its time is up, or when its caller has lost interest. */
export class TimeLimit {
  readonly #ended = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #caller: AbortSignal | undefined;
  readonly #end = (): void => this.#ended.abort(new Error('the time is up'));

  /** `deadline` in milliseconds since the epoch. */
  constructor(deadline: number, caller?: AbortSignal) {
    const left = deadline - Date.now();
    this.#timer = setTimeout(this.#end, Math.min(Math.max(left, 0), LONGEST_MS));
    this.#caller = caller;
    caller?.addEventListener('abort', this.#end, { once: true });
    if (left <= 0 || caller?.aborted === true) this.#end();
  }

  get isOver(): boolean {
    return this.#ended.signal.aborted;
  }

  /** Aborts at the end. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Throws the caller's reason when it was the caller who ended it. */
  throwIfAborted(): void {
    this.#caller?.throwIfAborted();
  }

  /** Waits for `work`, but not past the end: undefined then, whatever becomes of the work. Rejects as the work does. */
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

  /** Lets so many milliseconds pass, or fewer at the end. */
  async pause(milliseconds: number): Promise<void> {
    const waiting = new AbortController();
    await this.orOver(delay(milliseconds, undefined, { signal: waiting.signal }).catch(() => undefined));
    waiting.abort();
  }

  /** Takes timer and listener away. */
  close(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener('abort', this.#end);
  }
}
