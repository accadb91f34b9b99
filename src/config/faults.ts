import type * as z from 'zod/mini';
import { type ConfigKey, alternatives, configKeys, settingOf } from './schema.ts';

/** A fault of the settings: which key, and what is wrong with its value. */
export interface Fault {
  /** Path of the key; empty when the whole is meant. */
  readonly path: readonly PropertyKey[];
  readonly text: string;
}

/** Says each of zod's issues as a person would: the value, and what is allowed. */
export function faultsOf(error: z.core.$ZodError, input: unknown, allowedKeys: readonly string[]): Fault[] {
  return error.issues.flatMap((issue): Fault[] => {
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({
        path: [...issue.path, key],
        text: `unknown key${suggestion(key, allowedKeys)}; allowed are ${allowedKeys.join(', ')}`,
      }));
    }
    const key = issue.path[0];
    const value = valueAt(input, issue.path);
    return [{ path: issue.path, text: `${shown(value)} ${demandOf(issue, key)}` }];
  });
}

function demandOf(issue: z.core.$ZodIssue, key: PropertyKey | undefined): string {
  if (issue.code === 'custom') return issue.message;
  if (issue.code === 'invalid_value') return `must be ${alternatives(issue.values.map(String))}`;
  return `must be ${isConfigKey(key) ? settingOf(key).allowed : 'a mapping of settings'}`;
}

const isConfigKey = (key: PropertyKey | undefined): key is ConfigKey => configKeys.some((known) => known === key);

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined),
    input,
  );
}

/** A value as it stands in an error: short, on one line. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return 'an empty value';
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return typeof value;
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** `; did you mean "kubeletRoot"?` when a known key differs in little. */
function suggestion(key: string, known: readonly string[]): string {
  const simple = (name: string): string => name.toLowerCase().replace(/[-_]/g, '');
  const near = known.find((name) => distance(simple(name), simple(key)) <= Math.max(1, Math.floor(name.length / 5)));
  return near === undefined ? '' : ` (did you mean ${near}?)`;
}

/** Levenshtein's distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (const [index, letter] of Array.from(a).entries()) {
    const next = [index + 1];
    for (const [column, other] of Array.from(b).entries()) {
      const [left = 0, above = 0, diagonal = 0] = [next[column], row[column + 1], row[column]];
      next.push(Math.min(left + 1, above + 1, diagonal + (letter === other ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
