/** Invalid settings, with one line per problem. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  /** `usage`: the command line is invalid; `file`: the configuration file is invalid. */
  constructor(
    readonly source: 'usage' | 'file',
    readonly problems: readonly string[],
    options?: { cause?: unknown },
  ) {
    super(problems.join('\n'), options);
  }
}
