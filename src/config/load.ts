import { ConfigError } from './errors.ts';
import { type FileSettings, readSettings } from './file.ts';
import { readFlags } from './flags.ts';
import { type Config, type ConfigKey, type Settings, flagOf, schema } from './schema.ts';
import { version } from './version.ts';

/** What the command line asks this process to do. */
export type Invocation =
  | { readonly ask: 'run'; readonly config: Config }
  /** Print `text` to stdout and exit. */
  | { readonly ask: 'print'; readonly text: string };

/** Where settings are written. Flags take precedence over the file. */
export interface WrittenSettings {
  /** The file that the command line names. */
  readonly configFile: string | undefined;
  readonly file: FileSettings;
  readonly flags: Settings;
}

const NO_FILE: FileSettings = { settings: {}, lineOf: () => undefined };

/**
 * Reads the settings from the command line (without the program name) and from the file that it names. Flags take precedence
 * over the file, and the file over defaults. Throws ConfigError, which lists every problem of one source with its key, value
 * and the allowed values.
 */
export async function loadConfig(argv: readonly string[]): Promise<Invocation> {
  const commandLine = readFlags(argv, version);
  if (commandLine.ask === 'print') return commandLine;
  const { configFile, settings: flags } = commandLine;
  const file = configFile === undefined ? NO_FILE : await readSettings(configFile);
  return { ask: 'run', config: configOf({ configFile, file, flags }) };
}

/** Merges settings. Throws ConfigError if they contradict each other. */
export function configOf({ configFile, file, flags }: WrittenSettings): Config {
  const config = schema.parse({ ...file.settings, ...flags });
  const conflict = conflictIn(config);
  if (conflict === undefined) return config;
  if (configFile === undefined || conflictIn(schema.parse(flags)) !== undefined)
    throw new ConfigError('usage', [conflictText(conflict, flagOf)]);
  const line = [conflict.key, conflict.other].map((key) => file.lineOf(key)).find((found) => found !== undefined);
  const place = line === undefined ? configFile : `${configFile}:${line}`;
  throw new ConfigError('file', [`${place}: ${conflictText(conflict, (key) => key)}`]);
}

/** Two sockets with one path. */
interface Conflict {
  readonly key: ConfigKey;
  readonly other: ConfigKey;
  readonly path: string;
}

function conflictIn(config: Config): Conflict | undefined {
  const { listen, containerRuntimeEndpoint, resizeListen, metricsBind } = config;
  const sockets: readonly (readonly [ConfigKey, string])[] = [
    ['containerRuntimeEndpoint', containerRuntimeEndpoint],
    ['listen', listen],
    ['resizeListen', resizeListen],
    ['metricsBind', metricsBind.kind === 'unix' ? metricsBind.path : ''],
  ];
  for (const [index, [key, path]] of sockets.entries()) {
    const earlier = sockets.slice(0, index).toReversed();
    const same = path === '' ? undefined : earlier.find(([, other]) => other === path);
    if (same !== undefined) return { key, other: same[0], path };
  }
  return undefined;
}

function conflictText({ key, other, path }: Conflict, nameOf: (key: ConfigKey) => string): string {
  const why = key === 'listen' ? ', so the shim would call itself' : '';
  return `${nameOf(key)} and ${nameOf(other)} are both ${path}${why}; use different paths`;
}
