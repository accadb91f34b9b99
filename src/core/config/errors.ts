import type * as z from 'zod/mini';
import { nearest } from '../errors.ts';
import { alternatives, type ConfigKey, configKeys, type Settings, settingOf } from './schema.ts';

/** The usable part of a configuration file that has problems. */
export interface UsableSettings {
  /** The settings without a problem, as written. */
  readonly settings: Settings;
  /** Whether the file has unknown keys: each may be a misspelled setting. */
  readonly hasUnknownKeys: boolean;
  /** Whether `metricsTokenFile` has a problem. */
  readonly isTokenInvalid: boolean;
}

/** Invalid settings, with one line per problem. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  /** The rest of an invalid file. Undefined if nothing of it can be used, and for the command line. */
  readonly usable: UsableSettings | undefined;

  /** `usage`: the command line is invalid; `file`: the configuration file is invalid. */
  constructor(
    readonly source: 'usage' | 'file',
    readonly problems: readonly string[],
    { usable, cause }: { readonly usable?: UsableSettings; readonly cause?: unknown } = {},
  ) {
    super(problems.join('\n'), { cause });
    this.usable = usable;
  }
}

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

/** Returns ` (did you mean kubeletRoot?)` for the known word that is most similar; case, `-` and `_` do not matter. */
function suggestion(word: string, known: readonly string[]): string {
  const near = nearest(word, known, (name) => name.toLowerCase().replace(/[-_]/g, ''));
  return near === undefined ? '' : ` (did you mean ${near}?)`;
}
