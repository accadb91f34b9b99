import { loggableError, messageOf } from '../errors.ts';
import type { Log, LogFields } from './interfaces.ts';

/** The texts of a {@link FailureLog}: fixed phrases. */
export interface FailureTexts {
  readonly failed: string;
  readonly over: string;
}

/**
 * Logs a repeated failure once for each cause. The line of the next cause or of the recovery reports how often the
 * previous cause failed.
 */
export class FailureLog {
  #cause: string | undefined;
  #count = 0;

  constructor(
    private readonly log: Log,
    private readonly texts: FailureTexts,
  ) {}

  /**
   * Counts a failure, and logs it if its cause is new.
   * @param fields further fields of the log line, next to name, errno and stack
   */
  failed(error: unknown, fields: LogFields = {}): void {
    const cause = error instanceof Error ? `${error.name}: ${messageOf(error)}` : messageOf(error);
    if (cause !== this.#cause) {
      this.log.error({ ...loggableError(error), ...fields, ...this.#earlier }, this.texts.failed);
      this.#cause = cause;
      this.#count = 0;
    }
    this.#count += 1;
  }

  /** Records a success: logs the end of the failure, if there was one. */
  succeeded(): void {
    if (this.#cause !== undefined) this.log.info(this.#earlier, this.texts.over);
    this.#cause = undefined;
    this.#count = 0;
  }

  get #earlier(): { readonly failures?: number } {
    return this.#count === 0 ? {} : { failures: this.#count };
  }
}

/**
 * Returns a function that is true for the first use of a key, to log something once instead of with every call. It
 * remembers the `capacity` most recently used keys; a forgotten key counts as new.
 */
export function oncePerKey(capacity = 1024): (key: string) => boolean {
  const seen = new Set<string>();
  return (key) => {
    const first = !seen.delete(key);
    // Moves the key to the end, so that the first one is the least recently used.
    seen.add(key);
    if (seen.size > capacity) {
      const [oldest] = seen;
      if (oldest !== undefined) seen.delete(oldest);
    }
    return first;
  };
}
