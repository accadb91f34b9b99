import { Command, CommanderError, Option } from 'commander';
import { ConfigError } from './errors.ts';
import { faultsOf } from './faults.ts';
import type { Settings } from './file.ts';
import { type ConfigKey, configKeys, flagOf, schema, settingOf } from './schema.ts';

/** What the command line asks for. */
export type CommandLine =
  | { readonly ask: 'run'; readonly configFile: string | undefined; readonly settings: Settings }
  /** --help or --version: print this and end. */
  | { readonly ask: 'print'; readonly text: string };

/** Reads the arguments after the program's name. Throws ConfigError for a flag or value that is not allowed. */
export function readFlags(argv: readonly string[], version: string): CommandLine {
  let printed = '';
  const command = new Command('cri-resize-shim')
    .description('In-place pod resize for any node: a CRI server between kubelet and containerd.')
    .usage('[flags]')
    .helpOption('-h, --help', 'Print this and exit.')
    .version(version, '-V, --version', 'Print the version and exit.')
    .allowExcessArguments(false)
    .configureHelp({ helpWidth: 120, optionDescription: (option) => option.description })
    .configureOutput({ writeOut: (text) => (printed += text), writeErr: () => undefined })
    .exitOverride()
    .addOption(new Option('--config <FILE>', 'YAML file with settings; a flag given as well goes before it.'));
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
    const faults = faultsOf(parsed.error, given, configKeys);
    throw new ConfigError(
      'usage',
      faults.map(({ path, text }) => `${flagOf(path[0] as ConfigKey)}: ${text}`),
    );
  }
  return { ask: 'run', configFile: config, settings: given };
}

/** Commander knows the flags' names only; values are the schema's affair. */
function optionOf(key: ConfigKey): Option {
  const { description, placeholder, fallback, isSwitch } = settingOf(key);
  // The value of a switch may be left out, as with Kubernetes' components: --intercept is --intercept=true.
  const value = isSwitch ? `[${placeholder}]` : `<${placeholder}>`;
  const option = new Option(
    `${flagOf(key)} ${value}`,
    `${description} (default ${fallback === '' ? 'empty' : fallback})`,
  );
  if (isSwitch) option.preset('true').argParser((text: string) => ({ true: true, false: false })[text] ?? text);
  return option;
}
