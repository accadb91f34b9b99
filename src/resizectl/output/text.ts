/** Text for people: aligned tables, amounts, and no terminal control characters. */
import { MiB, roundedDuration, roundedSize } from '../../core/quantities/index.ts';

/**
 * Replaces control characters, and so escape sequences, and the marks that reorder text (Unicode, Bidi_Control) by `?`: names and
 * messages come from other programs.
 */
export const printable = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- the control characters are what this is about.
  text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '?');

/** The name of a pod for people: `namespace/name`. */
export const fullName = ({ namespace, name }: { readonly namespace: string; readonly name: string }): string =>
  printable(`${namespace}/${name}`);

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

/**
 * Formats a message of the shim for people: without control characters, and with amounts of a mebibyte and more in units instead of
 * bytes. Two numbers in a row are a quota and its period.
 */
export const messageText = (message: string): string =>
  printable(message).replace(
    /(?<=^|[\s(])(?<!\d )(\d{7,15})(?: bytes)?(?! \d)(?=$|[\s,;:)])/g,
    (text, digits: string) => (Number(digits) < MiB ? text : roundedSize(Number(digits))),
  );

/** Formats a limit of the API; a number of bytes is rounded to one decimal. */
export function limitText(limit: string): string {
  return /^\d+$/.test(limit) ? roundedSize(Number(limit)) : limit;
}

/** Formats a duration of the API: `1.2 ms`, `3.4 s`. */
export const durationText = ({ seconds, nanos }: { readonly seconds: number; readonly nanos: number }): string =>
  roundedDuration(seconds * 1000 + nanos / 1e6);

/** `1 use`, `2 uses` */
export const counted = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`;
