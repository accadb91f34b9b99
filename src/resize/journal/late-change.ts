import type { Clock } from '../../core/concurrency/index.ts';

/**
 * How long a caller, which holds the lock of its pod, waits for the disk, in milliseconds. A disk whose fsync takes longer counts as
 * unavailable.
 */
export const LONGEST_CHANGE_MS = 5000;

/** A change of the journal has taken too long. It may still reach the disk. */
export class LateChange extends Error {
  constructor() {
    super(`the disk takes longer than ${LONGEST_CHANGE_MS} ms`);
  }
}

/** Waits for a change. Rejects with {@link LateChange} when it takes too long; the change continues. */
export async function inTime(change: Promise<void>, clock: Clock): Promise<void> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = clock.after(LONGEST_CHANGE_MS, () => reject(new LateChange()));
  });
  try {
    await Promise.race([change, late]);
  } finally {
    stop();
  }
}
