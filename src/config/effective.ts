import { ConfigError } from './errors.ts';
import { readSettings } from './file.ts';
import { type CommandLine, readFlags } from './flags.ts';
import { configOf } from './load.ts';
import { type ConfigKey, configKeys, settingOf } from './schema.ts';
import { version } from './version.ts';

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

/** Returns every setting that applies with this command line (without the program name). Throws ConfigError like {@link loadConfig}. */
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

/** Returns the configuration file that a command line names, if any, without reading it. Throws ConfigError for invalid flags. */
export function configFileIn(argv: readonly string[]): string | undefined {
  return runFlags(argv).configFile;
}

function runFlags(argv: readonly string[]): Extract<CommandLine, { ask: 'run' }> {
  const commandLine = readFlags(argv, version);
  if (commandLine.ask === 'print') throw new ConfigError('usage', ['the flags only print a text']);
  return commandLine;
}
