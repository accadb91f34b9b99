import { stringify } from 'yaml';
import type { Output } from '../command-table/index.ts';

/**
 * Converts a response of the API to an object for programs: fields and enums have the names of proto/criresize, timestamps are
 * RFC 3339 and durations seconds with their unit (`0.0012s`) as in the JSON mapping of protobuf. Sizes stay numbers.
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
