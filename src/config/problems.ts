import type * as z from 'zod/mini';
import { type ConfigKey, alternatives, configKeys, settingOf } from './schema.ts';

/** An invalid setting. */
export interface Problem {
  /** Path of the key. Empty for the settings as a whole. */
  readonly path: readonly PropertyKey[];
  readonly text: string;
}

/** Describes each of zod's issues for users: the value and the allowed values. */
export function problemsOf(error: z.core.$ZodError, input: unknown, allowedKeys: readonly string[]): Problem[] {
  return error.issues.flatMap((issue): Problem[] => {
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({
        path: [...issue.path, key],
        text: `unknown key${suggestion(key, allowedKeys)}; allowed keys: ${allowedKeys.join(', ')}`,
      }));
    }
    const key = issue.path[0];
    const value = valueAt(input, issue.path);
    return [{ path: issue.path, text: `${shown(value)} ${requirementOf(issue, key, value)}` }];
  });
}

function requirementOf(issue: z.core.$ZodIssue, key: PropertyKey | undefined, value: unknown): string {
  if (issue.code === 'custom') return issue.message;
  if (issue.code === 'invalid_value') {
    const words = issue.values.map(String);
    return `must be ${alternatives(words)}${typeof value === 'string' ? suggestion(value, words) : ''}`;
  }
  return `must be ${isConfigKey(key) ? settingOf(key).allowed : 'a mapping of settings'}`;
}

const isConfigKey = (key: PropertyKey | undefined): key is ConfigKey => configKeys.some((known) => known === key);

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (value, key) => (typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined),
    input,
  );
}

/** Formats a value for an error: short, on one line. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return 'an empty value';
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return typeof value;
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** ` (did you mean kubeletRoot?)` if a known word differs in case, `-` and `_`, or in at most two other characters. */
function suggestion(word: string, known: readonly string[]): string {
  const simple = (name: string): string => name.toLowerCase().replace(/[-_]/g, '');
  // Long input is not compared: the time grows with the product of both lengths.
  if (word.length > LONGEST_SUGGESTED) return '';
  const distances = known.map((name) => ({ name, distance: editDistance(simple(word), simple(name)) }));
  const [near] = distances.toSorted((a, b) => a.distance - b.distance);
  const isNear = near !== undefined && near.distance <= 2 && near.distance * 3 <= near.name.length;
  return isNear ? ` (did you mean ${near.name}?)` : '';
}

const LONGEST_SUGGESTED = 64;

/** The number of characters to insert, remove or replace to make one word of another (Levenshtein distance). */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let index = 0; index < one.length; index += 1) {
    const next = [index + 1];
    for (let at = 0; at < other.length; at += 1) {
      const replaced = (row[at] ?? 0) + (one[index] === other[at] ? 0 : 1);
      next.push(Math.min(replaced, (row[at + 1] ?? 0) + 1, (next[at] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
