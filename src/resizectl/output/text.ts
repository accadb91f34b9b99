/** Text for people: aligned tables and amounts, without terminal control characters. Objects for programs. */
import { stringify } from 'yaml';
import { MiB, roundedDuration, roundedSize } from '../../core/index.ts';
import type { Output } from '../command-texts.ts';

/**
 * Replaces control characters, and so escape sequences, and the marks that reorder text (Unicode, Bidi_Control) by `?`:
 * names and messages come from other programs.
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
 * Formats a message of the shim for people: without control characters, and with amounts of a mebibyte and more in
 * units instead of bytes. Two numbers in a row are a quota and its period.
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

/**
 * Converts a response of the API to an object for programs: fields and enums have the names of proto/criresize,
 * timestamps are RFC 3339 and durations seconds with their unit (`0.0012s`) as in the JSON mapping of protobuf. Sizes
 * stay numbers.
 */
export function plainObject(value: unknown, key = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => plainObject(item));
  if (typeof value !== 'object' || value === null) return value;
  if (isSpan(value)) return moments.has(key) ? momentText(value) : spanText(value);
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, plainObject(field, name)]));
}

const moments: ReadonlySet<string> = new Set(['created', 'changed', 'next_try', 'since', 'time']);

interface Span {
  readonly seconds: number;
  readonly nanos: number;
}

const isSpan = (value: object): value is Span => 'seconds' in value && 'nanos' in value;
const momentText = ({ seconds, nanos }: Span): string =>
  new Date(seconds * 1000 + Math.floor(nanos / 1e6)).toISOString();
const spanText = ({ seconds, nanos }: Span): string => `${Number((seconds + nanos / 1e9).toFixed(9))}s`;

/** Formats an object as JSON or YAML. @param lines one object per line (YAML: per document), for streams */
export function objectText(value: object, output: Extract<Output, 'json' | 'yaml'>, lines = false): string {
  const object = plainObject(value);
  if (output === 'yaml') return `${lines ? '---\n' : ''}${stringify(object)}`;
  return `${lines ? JSON.stringify(object) : JSON.stringify(object, undefined, 2)}\n`;
}
