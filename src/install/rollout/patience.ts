import { setTimeout as delay } from 'node:timers/promises';
import { ApiRefusal, wordsOf } from '../../kubernetes/client/index.ts';

const FIRST_MS = 1000;
const LONGEST_MS = 60_000;

/**
 * How long to wait after so many tries, in milliseconds: doubled each time up to a minute, and the second half of it left to chance. Ten
 * thousand nodes that wait for one another ask some 200 times a second between them.
 * @param random 0 to 1, as Math.random gives it
 */
export function pause(tries: number, random: number): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, tries - 1));
  return Math.round(whole / 2 + (whole / 2) * random);
}

export interface Patience {
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly say: (line: string) => void;
}

/**
 * Tries until it succeeds: what cannot be asked now can be asked later, and nothing is decided without an answer. Says once what hinders.
 * Rejects only with the signal's reason.
 */
export async function untilDone<Value>(
  what: string,
  { random, say }: Patience,
  signal: AbortSignal,
  attempt: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  let said = '';
  for (let tries = 1; ; tries += 1) {
    signal.throwIfAborted();
    try {
      return await attempt(signal);
    } catch (error) {
      signal.throwIfAborted();
      const words = wordsOf(error);
      if (words !== said) say(`${what}: ${words}; trying again`);
      said = words;
      const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
      await delay(Math.max(asked, pause(tries, random())), undefined, { signal });
    }
  }
}

/** Says a line when it is another one than before. */
export function sayingOnce(say: (line: string) => void): (line: string) => void {
  let last = '';
  return (line) => {
    if (line !== last) say(line);
    last = line;
  };
}
