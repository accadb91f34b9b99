/** Sizes and durations as text for people. */

/** One kibibyte and one mebibyte, in bytes. */
export const KiB = 2 ** 10;
export const MiB = 2 ** 20;

/** The binary suffixes of Kubernetes' quantities, the largest first. */
const SUFFIXES = [
  ['Ti', 2 ** 40],
  ['Gi', 2 ** 30],
  ['Mi', MiB],
  ['Ki', KiB],
] as const;

/** Formats bytes exactly, in the largest unit that leaves a whole number: `256Mi`, `1280Mi`, `1000`. */
export function exactSize(bytes: number): string {
  const [suffix, size] = SUFFIXES.find(([, unit]) => bytes > 0 && bytes % unit === 0) ?? ['', 1];
  return `${bytes / size}${suffix}`;
}

/** Formats bytes with at most one decimal: `256Mi`, `12.3Mi`. */
export function roundedSize(bytes: number): string {
  const { amount, suffix } = rounded(bytes);
  return `${amount}${suffix}`;
}

/** Formats bytes with at most one decimal and the unit as on a page: `256 MiB`, `12.3 MiB`, `100 B`. */
export function roundedSizeWithUnit(bytes: number): string {
  const { amount, suffix } = rounded(bytes);
  return `${amount} ${suffix}B`;
}

function rounded(bytes: number): { readonly amount: string; readonly suffix: string } {
  const [suffix, size] = SUFFIXES.find(([, unit]) => bytes >= unit) ?? ['', 1];
  const amount = bytes / size;
  return { amount: Number.isInteger(amount) ? String(amount) : amount.toFixed(1), suffix };
}

/** Formats milliseconds: `1.2 ms`, `46 ms`, `3.4 s`. */
export const roundedDuration = (ms: number): string =>
  ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
