import { stringify } from 'yaml';
import type { Output } from '../command-table.ts';

/**
 * An answer of the API as an object for programs: fields and enums by the names of proto/criresize, timestamps in RFC 3339,
 * durations in seconds with their unit (`0.0012s`), as protobuf's JSON has them; sizes stay numbers.
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

/** As JSON or YAML; a line of its own each with `lines`. */
export function objectText(value: object, output: Extract<Output, 'json' | 'yaml'>, lines = false): string {
  const object = plainObject(value);
  if (output === 'yaml') return `${lines ? '---\n' : ''}${stringify(object)}`;
  return `${lines ? JSON.stringify(object) : JSON.stringify(object, undefined, 2)}\n`;
}
