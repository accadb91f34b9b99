import { ConfigError } from './errors.ts';
import { readSettings } from './file.ts';
import { readFlags } from './flags.ts';
import { type Config, type ConfigKey, flagOf, schema } from './schema.ts';
import { version } from './version.ts';

/** What the user wants of this process. */
export type Invocation =
  | { readonly ask: 'run'; readonly config: Config }
  /** Print this to stdout, and end. */
  | { readonly ask: 'print'; readonly text: string };

/**
 * Settings from the command line (without program name) and the file that it names: flag before file before default.
 * Throws ConfigError, which says every fault of one source with its key, value and what is allowed.
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
      `${flags} are both ${config.listen}: the shim would call itself; give the first a path of its own`,
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
    throw new ConfigError('usage', [
      `${flagOf(key)} and ${flagOf(other)} are both ${path}; give the first a path of its own`,
    ]);
  }
}
