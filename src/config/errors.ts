import type { Settings } from './schema.ts';

/** What can be used of a configuration file that has problems. */
export interface UsableSettings {
  /** The settings without a problem, as written. */
  readonly settings: Settings;
  /** Whether the file has keys that are no settings: each may be a setting that is spelled wrong. */
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
