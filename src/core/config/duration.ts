import { LONGEST_TIMER_MS } from '../waiting.ts';
import { fromText } from './values.ts';

const milliseconds = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;

/** The form of a duration, for errors and documentation. */
export const durationForm = 'a duration such as 500ms, 30s or 1m30s (units: ms, s, m, h), at most 596h';

/** The form of a duration other than `0`. */
export const durationPattern = /^(?:\d{1,9}(?:\.\d{1,3})?(?:ms|s|m|h))+$/;

/** Reads durations such as `500ms`, `30s`, `1h`, `1m30s`. Returns milliseconds; undefined if not a duration. */
export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  if (!durationPattern.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/([\d.]+)(ms|s|m|h)/g)) {
    total += Number(amount) * milliseconds[unit as keyof typeof milliseconds];
  }
  return total <= LONGEST_TIMER_MS ? Math.round(total) : undefined;
}

/** A duration in Go's notation. Reads as milliseconds. */
export const duration = fromText((text, refuse) => parseDuration(text) ?? refuse(`must be ${durationForm}`));
