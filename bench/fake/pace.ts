import { setTimeout as delay } from 'node:timers/promises';
import type { Pace } from './pods-runtime.ts';

/** Admits this many callers at the same time, in the order of their calls, each for this many milliseconds. */
export function paced(milliseconds: number, atOnce: number): Pace {
  const waiting: (() => void)[] = [];
  let free = atOnce;
  return async () => {
    if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
    else free -= 1;
    await delay(milliseconds);
    const next = waiting.shift();
    if (next === undefined) free += 1;
    else next();
  };
}
