/** Use changes in seconds; a pod that is full for an hour need not be looked at more often than each minute. */
const FIRST_MS = 1000;
const LONGEST_MS = 60_000;

/**
 * How long to wait after so many tries, in milliseconds: doubled each time up to a minute, of which the second half is
 * left to chance, so that pods which were deferred together are not all tried together.
 * @param random 0 to 1, as Math.random gives it
 */
export function retryDelay(tries: number, random: number): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, tries - 1));
  return Math.round(whole / 2 + (whole / 2) * random);
}
