import { Command, CommanderError, Option } from 'commander';
import { ConfigError, problemsOf, type UsableSettings } from './errors.ts';
import { type FileSettings, readSettings } from './file.ts';
import { type Config, type ConfigKey, configKeys, flagOf, type Settings, schema, settingOf } from './schema.ts';
import { version } from './version.ts';

/** The action that the command line asks for. */
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
 * Reads the settings from the command line (without the program name) and from the file that it names. Flags take
 * precedence over the file, and the file over defaults. Throws ConfigError, which lists every problem of one source
 * with its key, value and the allowed values.
 */
export async function loadConfig(argv: readonly string[]): Promise<Invocation> {
  const commandLine = readFlags(argv, version);
  if (commandLine.ask === 'print') return commandLine;
  const { configFile, settings: flags } = commandLine;
  const file = configFile === undefined ? NO_FILE : await readSettings(configFile);
  return { ask: 'run', config: configOf({ configFile, file, flags }) };
}

/** Merges settings. Throws ConfigError if they contradict each other. */
function configOf({ configFile, file, flags }: WrittenSettings): Config {
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

/** The parsed command line. */
type CommandLine =
  | { readonly ask: 'run'; readonly configFile: string | undefined; readonly settings: Settings }
  /** --help or --version: print `text` and exit. */
  | { readonly ask: 'print'; readonly text: string };

/** Reads the arguments after the program's name. Throws ConfigError for an unknown flag or an invalid value. */
function readFlags(argv: readonly string[], version: string): CommandLine {
  let printed = '';
  const command = new Command('cri-resize-shim')
    .description('In-place pod resize: a CRI server between kubelet and containerd.')
    .usage('[flags]')
    .helpOption('-h, --help', 'Print this help and exit.')
    .version(version, '-V, --version', 'Print the version and exit.')
    .allowExcessArguments(false)
    .configureHelp({ helpWidth: 120, optionDescription: (option) => option.description })
    .configureOutput({ writeOut: (text) => (printed += text), writeErr: () => undefined })
    .exitOverride()
    .addOption(new Option('--config <FILE>', 'YAML file with settings. Flags take precedence over it.'));
  for (const key of configKeys) command.addOption(optionOf(key));

  try {
    command.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { ask: 'print', text: printed.endsWith('\n') ? printed : `${printed}\n` };
    throw new ConfigError('usage', [error.message.replace(/^error: /, '').replaceAll('\n', ' ')], { cause: error });
  }
  const { config, ...given } = command.opts<{ config?: string } & Settings>();
  const parsed = schema.safeParse(given);
  if (!parsed.success) {
    const problems = problemsOf(parsed.error, given, configKeys);
    throw new ConfigError(
      'usage',
      problems.map(({ path, text }) => `${flagOf(path[0] as ConfigKey)}: ${text}`),
    );
  }
  return { ask: 'run', configFile: config, settings: given };
}

/** The commander option for a setting. Commander only knows the name: the schema validates the value. */
function optionOf(key: ConfigKey): Option {
  const { description, placeholder, fallback, isBoolean } = settingOf(key);
  // The value of a boolean flag is optional, as in Kubernetes components: --intercept means --intercept=true.
  const value = isBoolean ? `[${placeholder}]` : `<${placeholder}>`;
  const option = new Option(
    `${flagOf(key)} ${value}`,
    `${description} (default ${fallback === '' ? 'empty' : fallback})`,
  );
  if (isBoolean) option.preset('true').argParser((text: string) => ({ true: true, false: false })[text] ?? text);
  return option;
}

/** A setting with its value, as a user writes it, and where it comes from. */
export interface EffectiveSetting {
  readonly key: ConfigKey;
  readonly value: string | number | boolean;
  readonly from: 'default' | 'file' | 'flag';
  /** Line of the file. */
  readonly line: number | undefined;
}

export interface EffectiveSettings {
  /** The file that the command line names. */
  readonly configFile: string | undefined;
  /** In the order of the documentation. */
  readonly settings: readonly EffectiveSetting[];
}

/** Returns all settings for a command line (without program name). Throws ConfigError like {@link loadConfig}. */
export async function effectiveSettings(argv: readonly string[]): Promise<EffectiveSettings> {
  const { configFile, settings: flags } = runFlags(argv);
  const file = configFile === undefined ? undefined : await readSettings(configFile);
  if (file !== undefined) configOf({ configFile, file, flags });
  const settings = configKeys.map((key): EffectiveSetting => {
    const [flag, written] = [flags[key], file?.settings[key]];
    if (flag !== undefined) return { key, value: flag, from: 'flag', line: undefined };
    if (written !== undefined) return { key, value: written, from: 'file', line: file?.lineOf(key) };
    const { fallback, isBoolean } = settingOf(key);
    return { key, value: isBoolean ? fallback === 'true' : fallback, from: 'default', line: undefined };
  });
  return { configFile, settings };
}

/**
 * Returns the path of the configuration file in a command line, if any, without reading the file. Throws ConfigError
 * for invalid flags.
 */
export function configFileIn(argv: readonly string[]): string | undefined {
  return runFlags(argv).configFile;
}

function runFlags(argv: readonly string[]): Extract<CommandLine, { ask: 'run' }> {
  const commandLine = readFlags(argv, version);
  if (commandLine.ask === 'print') throw new ConfigError('usage', ['the flags only print a text']);
  return commandLine;
}

/**
 * Returns a configuration that forwards every call despite an invalid file: the valid settings of the file and
 * `intercept: false`. Throws the error if even that is not possible.
 * @param error of {@link loadConfig}
 * @param lastBackend containerd's socket that the shim used last: applies if the file has no valid one
 */
export function passThroughConfig(argv: readonly string[], error: ConfigError, lastBackend?: string): Config {
  const commandLine = readFlags(argv, version);
  if (error.source !== 'file' || commandLine.ask !== 'run') throw error;
  const backend = lastBackend === undefined ? {} : { containerRuntimeEndpoint: lastBackend };
  const own = { ...commandLine.settings, intercept: false };
  // Sockets of the file that contradict each other are not used either.
  for (const usable of [error.usable, undefined]) {
    const written = { ...backend, ...usable?.settings };
    const flags = isTokenKnown(usable, own) ? own : { ...own, metricsBind: '' };
    try {
      return configOf({ configFile: '', file: { settings: written, lineOf: () => undefined }, flags });
    } catch (cause) {
      if (!(cause instanceof ConfigError)) throw cause;
    }
  }
  throw error;
}

/** Whether the metrics token setting is known, even if it is unset: an unreadable part of the file may set a token. */
function isTokenKnown(usable: UsableSettings | undefined, flags: Settings): boolean {
  if (flags.metricsTokenFile !== undefined) return true;
  if (usable === undefined) return false;
  if (usable.settings.metricsTokenFile !== undefined) return true;
  return !usable.hasUnknownKeys && !usable.isTokenInvalid;
}
