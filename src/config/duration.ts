import { fromText } from './from-text.ts';

const milliseconds = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;
/** What setTimeout takes: 24 days. A longer one would fire at once. */
const longest = 2 ** 31 - 1;

/** What a duration looks like, for errors and documentation. */
export const durationForm = 'a number with a unit (ms, s, m, h), as in 500ms, 30s or 2m, at most 596h';

/** Reads `500ms`, `30s`, `2m`, `1h` and `1m30s`, gives milliseconds; undefined when it is no duration. */
export function parseDuration(text: string): number | undefined {
  if (text === '0') return 0;
  if (!/^(?:\d{1,9}(?:\.\d{1,3})?(?:ms|s|m|h))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/([\d.]+)(ms|s|m|h)/g)) {
    total += Number(amount) * milliseconds[unit as keyof typeof milliseconds];
  }
  return total <= longest ? Math.round(total) : undefined;
}

/** A duration as Go writes them; the output is in milliseconds. */
export const duration = fromText((text, refuse) => parseDuration(text) ?? refuse(`must be ${durationForm}`));
