import { backOff, type Clock, jittered, pause } from '../../core/index.ts';
import { ApiRefusal, wordsOf } from '../../kubernetes/index.ts';

const FIRST_MS = 1000;
const LONGEST_MS = 60_000;

/**
 * Returns the delay before the next try in milliseconds: doubled each time up to a minute, with the second half random.
 * Ten thousand waiting nodes together send some 200 requests per second.
 * @param random 0 to 1, as from Math.random
 */
export const retryDelay = (tries: number, random: number): number =>
  jittered(backOff(tries, FIRST_MS, LONGEST_MS), random);

export interface RetryOptions {
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly say: (line: string) => void;
}

/**
 * Retries until the attempt succeeds. Logs an error once until it changes. Rejects only with the reason of the signal,
 * or with an error that is final.
 * @param what prefix of the log line
 * @param isFinal whether a retry is useless after an error. Such an error is not logged
 */
export async function retry<Value>(
  what: string,
  { random, say, clock }: RetryOptions,
  signal: AbortSignal,
  attempt: (signal: AbortSignal) => Promise<Value>,
  isFinal: (error: unknown) => boolean = () => false,
): Promise<Value> {
  let logged = '';
  for (let tries = 1; ; tries += 1) {
    signal.throwIfAborted();
    try {
      return await attempt(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isFinal(error)) throw error;
      const words = wordsOf(error);
      if (words !== logged) say(`${what}: ${words}; trying again`);
      logged = words;
      const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
      await pause(clock, Math.max(asked, retryDelay(tries, random())), signal);
    }
  }
}

/** Returns a function that logs a line only if it differs from the previous one. */
export function loggingChanges(say: (line: string) => void): (line: string) => void {
  let last = '';
  return (line) => {
    if (line !== last) say(line);
    last = line;
  };
}
