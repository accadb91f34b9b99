/** What is wrong with the settings, one line for each fault. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  /** `usage`: the command line is wrong; `file`: the configuration file is. */
  constructor(
    readonly source: 'usage' | 'file',
    readonly faults: readonly string[],
    options?: { cause?: unknown },
  ) {
    super(faults.join('\n'), options);
  }
}
