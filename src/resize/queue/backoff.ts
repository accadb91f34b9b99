import { Reason } from '../../core/errors/index.ts';

/** Use changes in seconds; a pod that is full for an hour need not be looked at more often than each minute. */
const FIRST_MS = 1000;
const LONGEST_MS = 60_000;
/** Whether a volume's files fit is told by one statfs, and whoever has removed some waits for it. */
const LONGEST_FOR_VOLUME_MS = 5000;

/**
 * How long to wait after so many tries, in milliseconds: doubled each time up to a minute, for a volume in use up to 5 s, of which
 * the second half is left to chance, so that pods which were deferred together are not all tried together.
 * @param random 0 to 1, as Math.random gives it
 * @param reason why a resize was deferred
 */
export function retryDelay(tries: number, random: number, reason?: string): number {
  const longest = reason === Reason.VOLUME_IN_USE ? LONGEST_FOR_VOLUME_MS : LONGEST_MS;
  const whole = Math.min(longest, FIRST_MS * 2 ** Math.max(0, tries - 1));
  return Math.round(whole / 2 + (whole / 2) * random);
}
