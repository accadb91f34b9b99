import {
  type Clock,
  Code,
  type Counters,
  errnoOf,
  type Log,
  messageOf,
  Reason,
  ShimError,
  systemClock,
} from '../../core/index.ts';

/** Interval of checks while the journal is unavailable: otherwise only a resize would notice a fixed folder. */
export const RECHECK_MS = 10_000;
/** Maximum time that a readiness check waits for the disk. A slower disk counts as unavailable. */
export const ANSWER_MS = 2000;

/** Whether a resize can be journalled, and why not. */
export type Readiness = { readonly ready: true } | { readonly ready: false; readonly error: ShimError };

export interface AvailabilityOptions {
  readonly folder: string;
  readonly log: Log;
  readonly counters: Counters;
  /** If set, an unavailable journal is checked every {@link RECHECK_MS} until it is available. */
  readonly clock: Clock | undefined;
  /** Checks whether the folder is writable, and reports the result here. Never rejects. */
  readonly check: () => Promise<Readiness>;
  /** Whether the next check has to read, write or remove a file again. */
  readonly hasLeft: () => boolean;
}

/**
 * Tracks whether the journal's disk accepts writes. A disk that is full, read-only, broken or hangs makes the journal
 * unavailable: resizes are rejected with JOURNAL_UNAVAILABLE, until a write or a check succeeds.
 */
export class Availability {
  #fault: ShimError | undefined;
  /** Time of the last successful write. */
  #writtenAt = -Infinity;
  #checking: Promise<Readiness> | undefined;
  #stopRecheck: (() => void) | undefined;

  constructor(private readonly options: AvailabilityOptions) {}

  /** Result of the last write or check. After a failure, not ready until a write or a check succeeds. */
  get readiness(): Readiness {
    return this.#fault === undefined ? { ready: true } : { ready: false, error: this.#fault };
  }

  /**
   * Returns the present readiness. Checks the folder if the last successful write is older than {@link RECHECK_MS}, so
   * that a full or read-only disk is known before a resize fails. Not ready when the check takes longer than {@link
   * ANSWER_MS}. Never rejects.
   */
  async readinessNow(): Promise<Readiness> {
    const age = this.#clock.now() - this.#writtenAt;
    if (this.#fault !== undefined || age < RECHECK_MS) return this.readiness;
    try {
      return await atMost(ANSWER_MS, this.#check(), this.#clock);
    } catch {
      return { ready: false, error: this.#timeoutError() };
    }
  }

  /** First check of the folder. If it takes longer than {@link ANSWER_MS}, it is unavailable. Never rejects. */
  async firstCheck(): Promise<void> {
    try {
      await atMost(ANSWER_MS, this.#check(), this.#clock);
    } catch (error) {
      this.setUnavailable(error, this.options.folder);
    }
  }

  /** Records that a write has reached the disk. */
  setAvailable(): void {
    const { folder, hasLeft, log } = this.options;
    this.#writtenAt = this.#clock.now();
    if (this.#fault !== undefined) log.info({ folder }, 'journal writable again');
    this.#fault = undefined;
    if (!hasLeft()) this.cancelRecheck();
  }

  /** Records that a file could not be read or written. Returns the error for the caller. */
  setUnavailable(cause: unknown, file: string, pod?: string): ShimError {
    const error = unavailable(cause, file, pod);
    this.options.counters.journalFault('unavailable');
    if (this.#fault === undefined) this.options.log.error({ file, error: messageOf(cause) }, 'journal unavailable');
    this.#fault = error;
    this.recheckLater();
    return error;
  }

  recheckLater(): void {
    this.#stopRecheck ??= this.options.clock?.after(RECHECK_MS, () => {
      this.#stopRecheck = undefined;
      void this.#check();
    });
  }

  /** Shares one check between all callers: on a disk that hangs it does not return, and others would wait behind it. */
  #check(): Promise<Readiness> {
    return (this.#checking ??= this.options.check().finally(() => (this.#checking = undefined)));
  }

  cancelRecheck(): void {
    this.#stopRecheck?.();
    this.#stopRecheck = undefined;
  }

  get #clock(): Clock {
    return this.options.clock ?? systemClock;
  }

  #timeoutError(): ShimError {
    const { folder } = this.options;
    const message = `the journal is unavailable: writing a file to ${folder} takes longer than ${ANSWER_MS} ms`;
    return new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, { file: folder });
  }
}

/** Returns the error for a file of the journal that cannot be read or written. */
export function unavailable(cause: unknown, file: string, pod?: string): ShimError {
  const errno = errnoOf(cause);
  const context = { file, ...(pod === undefined ? {} : { pod }), ...(errno === undefined ? {} : { errno }) };
  const message = `the journal is unavailable: ${file}: ${messageOf(cause)}`;
  return new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, message, context, { cause });
}

/**
 * Maximum time that a caller, which holds its pod's lock, waits for a disk without progress, in milliseconds: for its
 * own change once that runs, before that for any change to end. A disk with a slower fsync counts as unavailable.
 */
export const LONGEST_CHANGE_MS = 5000;

/** Total wait of a caller for a slow disk, in ms: many pods may be resized at once, and each waits its turn. */
export const LONGEST_WAIT_MS = 30_000;

/** The error for a change or a read of the journal that took too long. A change may still reach the disk. */
export class LateChange extends Error {
  /** @param ms how long the change has taken, or how long the disk has made no progress */
  constructor(ms: number = LONGEST_CHANGE_MS) {
    super(`the disk takes longer than ${ms} ms`);
  }
}

/** A requested change of a file. */
export interface RequestedChange {
  readonly done: Promise<void>;
  /** When the change began, by {@link Clock.now}. Undefined while it waits for other changes. */
  readonly startedAt: number | undefined;
}

/**
 * Waits for a change. Rejects with {@link LateChange} when the disk takes too long; the change continues.
 * @param lastEnd returns when the last change of any file ended
 */
export async function inTime(change: RequestedChange, lastEnd: () => number, clock: Clock): Promise<void> {
  const from = clock.now();
  const stalledAt = (): number => (change.startedAt ?? Math.max(from, lastEnd())) + LONGEST_CHANGE_MS;
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    const check = (): void => {
      const now = clock.now();
      if (now >= stalledAt()) reject(new LateChange());
      else if (now >= from + LONGEST_WAIT_MS) reject(new LateChange(LONGEST_WAIT_MS));
      else stop = clock.after(Math.min(stalledAt(), from + LONGEST_WAIT_MS) - now, check);
    };
    check();
  });
  try {
    await Promise.race([change.done, late]);
  } finally {
    stop();
  }
}

/** Waits for disk work. Rejects with {@link LateChange} when it takes longer than `ms`; the work continues. */
export async function atMost<Result>(ms: number, work: Promise<Result>, clock: Clock): Promise<Result> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = clock.after(ms, () => reject(new LateChange(ms)));
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    stop();
  }
}
