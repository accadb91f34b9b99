/** Text for people: aligned tables, amounts, and no terminal control characters. */

/** Replaces control characters, and so escape sequences, by `?`: names and messages come from other programs. */
// biome-ignore lint: the control characters are what this is about.
export const printable = (text: string): string => text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, '?');

/** Formats rows as columns, separated by three blanks. The last column is not padded. */
export function table(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable));
  const widths = cells.reduce<number[]>(
    (most, row) => row.map((cell, column) => Math.max(cell.length, most[column] ?? 0)),
    [],
  );
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('   ')
      .trimEnd();
  return cells.map((row) => `${line(row)}\n`).join('');
}

const units = [
  ['Ti', 2 ** 40],
  ['Gi', 2 ** 30],
  ['Mi', 2 ** 20],
  ['Ki', 2 ** 10],
] as const;

/** Formats bytes with one decimal: `256Mi`, `1.5Gi`, `12.3Mi`. */
export function sizeText(bytes: number): string {
  const [unit, size] = units.find(([, least]) => bytes >= least) ?? ['', 1];
  const amount = bytes / size;
  return `${Number.isInteger(amount) ? amount : amount.toFixed(1)}${unit}`;
}

/**
 * Formats a message of the shim for people: without control characters, and with amounts of a mebibyte and more in units instead of
 * bytes. Two numbers in a row are a quota and its period.
 */
export const messageText = (message: string): string =>
  printable(message).replace(
    /(?<=^|[\s(])(?<!\d )(\d{7,15})(?: bytes)?(?! \d)(?=$|[\s,;:)])/g,
    (text, digits: string) => (Number(digits) < 2 ** 20 ? text : sizeText(Number(digits))),
  );

/** Formats bytes exactly, in the largest unit that leaves a whole number: `1280Mi`. */
export function exactSizeText(bytes: number): string {
  const [unit, size] = units.find(([, one]) => bytes > 0 && bytes % one === 0) ?? ['', 1];
  return `${bytes / size}${unit}`;
}

/** Formats a limit of the API; a number of bytes is rounded to one decimal. */
export function limitText(limit: string): string {
  return /^\d+$/.test(limit) ? sizeText(Number(limit)) : limit;
}

/** `1.2 ms`, `3.4 s` */
export function durationText({ seconds, nanos }: { readonly seconds: number; readonly nanos: number }): string {
  const ms = seconds * 1000 + nanos / 1e6;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

/** `1 use`, `2 uses` */
export const counted = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`;
