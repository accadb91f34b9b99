import { Command, CommanderError, Option, type OutputConfiguration } from 'commander';
import { version } from '../core/index.ts';
import { commandTexts } from './command-table.ts';
import {
  type CommandName,
  type CommandText,
  defaultEndpoint,
  exitTexts,
  globalOptions,
  type OptionText,
  type Output,
  programText,
} from './command-texts.ts';
import type { CommandOptions } from './commands/context.ts';
import { UsageError } from './output/failure.ts';

/** A parsed command line. */
export type Invocation =
  | {
      readonly ask: 'run';
      readonly command: CommandName;
      readonly args: readonly string[];
      readonly options: CommandOptions;
      readonly endpoint: string;
      readonly output: Output;
      /** Whether tables have more columns. */
      readonly isWide: boolean;
      /** Undefined: pods of all namespaces. */
      readonly namespace: string | undefined;
    }
  | { readonly ask: 'print'; readonly text: string };

/** Parses the arguments after the program name. Throws UsageError. */
export function parseCommandLine(argv: readonly string[]): Invocation {
  let printed = '';
  let found: Invocation | undefined;
  const write = { writeOut: (text: string) => (printed += text), writeErr: () => undefined };
  const program = configured(new Command(programText.name), write)
    .description(programText.description.join('\n\n'))
    .version(version, '-V, --version', 'Print the version and exit.')
    .addHelpText('after', `\nExit codes:\n${exitTexts.map(([code, meaning]) => `  ${code}  ${meaning}\n`).join('')}`);
  for (const option of globalOptions) program.addOption(optionOf(option));
  const groups = new Map<string, Command>();
  for (const text of commandTexts) {
    const [name = '', rest] = text.name.split(' ');
    const parent = rest === undefined ? program : groupOf(program, groups, name, write);
    parent.addCommand(
      commandOf(text, rest ?? name, write, (args, given) => {
        found = { ask: 'run', command: text.name, args, ...given };
      }),
    );
  }
  try {
    program.parse(withKinds(argv), { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0 && printed !== '') return { ask: 'print', text: printed };
    const message = error.code === 'commander.help' ? 'missing command' : error.message.replace(/^error: /, '');
    throw new UsageError(`${message.replaceAll('\n', ' ')}; resizectl --help lists the commands`, { cause: error });
  }
  if (found === undefined) throw new UsageError('missing command; resizectl --help lists the commands');
  return found;
}

type Write = Pick<OutputConfiguration, 'writeOut' | 'writeErr'>;

function configured(command: Command, write: Write): Command {
  return command
    .helpOption('-h, --help', 'Print this help and exit.')
    .allowExcessArguments(false)
    .configureHelp({ helpWidth: 100 })
    .configureOutput(write)
    .exitOverride();
}

/** Returns the parent command of `get pods` or `describe pod`. It is an error to call it without a resource. */
function groupOf(program: Command, groups: Map<string, Command>, name: string, write: Write): Command {
  const known = groups.get(name);
  if (known !== undefined) return known;
  const members = commandTexts.filter((text) => text.name.startsWith(`${name} `));
  const summaries = members.map(({ summary }) => summary);
  const expected = members.map((text) => text.name).join(' or ');
  const group = configured(new Command(name), write)
    .description(summaries.join('; '))
    .helpCommand(false)
    .allowExcessArguments(true)
    .action(() => {
      const [other] = group.args;
      if (other !== undefined) throw new UsageError(`unknown command '${name} ${other}': expected ${expected}`);
      throw new UsageError(`incomplete command '${name}': expected ${expected}`);
    });
  program.addCommand(group);
  groups.set(name, group);
  return group;
}

type Given = Omit<Extract<Invocation, { ask: 'run' }>, 'ask' | 'command' | 'args'>;

/** Returns the words with a kind that kubectl does not need: `get pod/web` is `get pod pod/web`. */
const withKinds = (argv: readonly string[]): readonly string[] =>
  argv.flatMap((word, index) =>
    /^(?:pods?|po)\/./.test(word) && ['get', 'describe'].includes(argv[index - 1] ?? '') ? ['pod', word] : [word],
  );

/** The global options and those of a command. */
interface AllOptions extends CommandOptions {
  readonly endpoint?: string;
  readonly output?: Output | 'wide';
  readonly namespace?: string;
  readonly allNamespaces?: boolean;
}

function commandOf(
  text: CommandText,
  name: string,
  write: Write,
  onParsed: (args: readonly string[], given: Given) => void,
): Command {
  const command = configured(new Command(name), write).summary(text.summary).description(paragraphs(text));
  command.aliases(text.aliases ?? []);
  for (const { form, description } of text.arguments) command.argument(form, description);
  for (const option of text.options) command.addOption(optionOf(option));
  return command.action(() => {
    const {
      endpoint = defaultEndpoint,
      output: format = 'table',
      namespace,
      allNamespaces = false,
      ...options
    } = command.optsWithGlobals<AllOptions>();
    if (allNamespaces && namespace !== undefined)
      throw new UsageError(`-n ${namespace} and -A exclude each other: one namespace, or all`);
    const isWide = format === 'wide';
    onParsed(command.args, { options, endpoint, output: isWide ? 'table' : format, isWide, namespace });
  });
}

function paragraphs({ summary, description, examples }: CommandText): string {
  const lines = examples.map(([line, what]) => `  ${line}${what === '' ? '' : `\n      ${what}`}`);
  const all = [`${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`, ...description];
  return [...all, ...(lines.length === 0 ? [] : [`Examples:\n${lines.join('\n')}`])].join('\n\n');
}

function optionOf({ flags, description, choices }: OptionText): Option {
  const option = new Option(flags, description);
  return choices === undefined ? option : option.choices([...choices]);
}
