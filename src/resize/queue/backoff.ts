import { Reason } from '../../core/errors/index.ts';

/** Memory usage changes within seconds; a pod that stays full needs at most one check per minute. */
const FIRST_MS = 1000;
const MAX_MS = 60_000;
/** A check of a volume costs one statfs, and a user who removes files waits for the resize. */
const MAX_FOR_VOLUME_MS = 5000;

/**
 * KEP-1287, KEP-6030: what does not fit yet is retried. Returns the delay before the next attempt, in milliseconds. It doubles with
 * each attempt up to a minute, or 5 s if a volume is in use. The second half is random, so that pods which were deferred together are
 * not retried together.
 * @param random 0 to 1, like the result of Math.random
 * @param reason why the resize was deferred
 */
export function retryDelay(tries: number, random: number, reason?: string): number {
  const max = reason === Reason.VOLUME_IN_USE ? MAX_FOR_VOLUME_MS : MAX_MS;
  const delay = Math.min(max, FIRST_MS * 2 ** Math.max(0, tries - 1));
  return Math.round(delay / 2 + (delay / 2) * random);
}
