import { ConfigError } from './errors.ts';
import { readSettings } from './file.ts';
import { readFlags } from './flags.ts';
import { type Config, type ConfigKey, flagOf, schema } from './schema.ts';
import { version } from './version.ts';

/** What the command line asks this process to do. */
export type Invocation =
  | { readonly ask: 'run'; readonly config: Config }
  /** Print `text` to stdout and exit. */
  | { readonly ask: 'print'; readonly text: string };

/**
 * Reads the settings from the command line (without the program name) and from the file that it names. Flags take precedence
 * over the file, and the file over defaults. Throws ConfigError, which lists every problem of one source with its key, value
 * and the allowed values.
 */
export async function loadConfig(argv: readonly string[]): Promise<Invocation> {
  const commandLine = readFlags(argv, version);
  if (commandLine.ask === 'print') return commandLine;
  const { configFile, settings } = commandLine;
  const fromFile = configFile === undefined ? {} : await readSettings(configFile);
  const config = schema.parse({ ...fromFile, ...settings });
  if (config.listen === config.containerRuntimeEndpoint) {
    const flags = `${flagOf('listen')} and ${flagOf('containerRuntimeEndpoint')}`;
    throw new ConfigError('usage', [
      `${flags} are both ${config.listen}, so the shim would call itself; use different paths`,
    ]);
  }
  assertOwnSocket('resizeListen', config.resizeListen, config, ['listen', 'containerRuntimeEndpoint']);
  const { metricsBind } = config;
  if (metricsBind.kind === 'unix')
    assertOwnSocket('metricsBind', metricsBind.path, config, ['listen', 'containerRuntimeEndpoint', 'resizeListen']);
  return { ask: 'run', config };
}

type SocketKey = 'listen' | 'containerRuntimeEndpoint' | 'resizeListen';

function assertOwnSocket(key: ConfigKey, path: string, config: Config, others: readonly SocketKey[]): void {
  for (const other of others) {
    if (path !== config[other]) continue;
    throw new ConfigError('usage', [`${flagOf(key)} and ${flagOf(other)} are both ${path}; use different paths`]);
  }
}
