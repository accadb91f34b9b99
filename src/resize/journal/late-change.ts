import type { Clock } from '../../core/concurrency/index.ts';

/**
 * How long a caller, which holds the lock of its pod, waits for a disk that does nothing, in milliseconds: for its own change once that
 * runs, and before that for any change to end. A disk whose fsync takes longer counts as unavailable.
 */
export const LONGEST_CHANGE_MS = 5000;

/** How long a caller waits for a slow disk in all, in milliseconds: many pods may be resized at once, and each waits for its turn. */
export const LONGEST_WAIT_MS = 30_000;

/** A change or a read of the journal has taken too long. A change may still reach the disk. */
export class LateChange extends Error {
  /** @param ms how long it has taken, or the disk has done nothing */
  constructor(ms: number = LONGEST_CHANGE_MS) {
    super(`the disk takes longer than ${ms} ms`);
  }
}

/** A change of a file that has been requested. */
export interface RequestedChange {
  readonly done: Promise<void>;
  /** When its turn came, by {@link Clock.now}. Undefined while it waits for other changes. */
  readonly startedAt: number | undefined;
}

/**
 * Waits for a change. Rejects with {@link LateChange} when the disk takes too long; the change continues.
 * @param lastEnd returns when the disk has last ended any change
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

/** Waits for work of the disk. Rejects with {@link LateChange} when it takes longer than `ms`; the work continues. */
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
