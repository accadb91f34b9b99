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
    return [{ path: issue.path, text: `${shown(value)} ${requirementOf(issue, key)}` }];
  });
}

function requirementOf(issue: z.core.$ZodIssue, key: PropertyKey | undefined): string {
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

/** Formats a value for an error: short, on one line. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return 'an empty value';
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) return typeof value;
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

/** ` (did you mean kubeletRoot?)` if a known key differs only in case, `-` and `_`. */
function suggestion(key: string, known: readonly string[]): string {
  const simple = (name: string): string => name.toLowerCase().replace(/[-_]/g, '');
  const near = known.find((name) => simple(name) === simple(key));
  return near === undefined ? '' : ` (did you mean ${near}?)`;
}
