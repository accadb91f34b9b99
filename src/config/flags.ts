import { Command, CommanderError, Option } from 'commander';
import { ConfigError } from './errors.ts';
import { problemsOf } from './problems.ts';
import { type ConfigKey, type Settings, configKeys, flagOf, schema, settingOf } from './schema.ts';

/** The parsed command line. */
export type CommandLine =
  | { readonly ask: 'run'; readonly configFile: string | undefined; readonly settings: Settings }
  /** --help or --version: print `text` and exit. */
  | { readonly ask: 'print'; readonly text: string };

/** Reads the arguments after the program's name. Throws ConfigError for an unknown flag or an invalid value. */
export function readFlags(argv: readonly string[], version: string): CommandLine {
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
