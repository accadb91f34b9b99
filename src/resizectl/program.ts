import { Command, CommanderError, Option, type OutputConfiguration } from 'commander';
import { version } from '../config/index.ts';
import type { CommandOptions } from './commands/index.ts';
import { UsageError } from './output/index.ts';
import {
  type CommandName,
  type CommandText,
  type OptionText,
  type Output,
  commandTexts,
  defaultEndpoint,
  exitTexts,
  globalOptions,
  programText,
} from './command-table.ts';

/** What the command line asks for. */
export type Invocation =
  | {
      readonly ask: 'run';
      readonly command: CommandName;
      readonly args: readonly string[];
      readonly options: CommandOptions;
      readonly endpoint: string;
      readonly output: Output;
    }
  | { readonly ask: 'print'; readonly text: string };

/** Reads the arguments after the program's name. Throws UsageError. */
export function readCommandLine(argv: readonly string[]): Invocation {
  let printed = '';
  let found: Invocation | undefined;
  const write = { writeOut: (text: string) => (printed += text), writeErr: () => undefined };
  const program = set(new Command(programText.name), write)
    .description(programText.description.join('\n\n'))
    .version(version, '-V, --version', 'print the version and exit')
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
    program.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0 && printed !== '') return { ask: 'print', text: printed };
    const message = error.code === 'commander.help' ? 'which command?' : error.message.replace(/^error: /, '');
    throw new UsageError(`${message.replaceAll('\n', ' ')}; resizectl --help lists the commands`, { cause: error });
  }
  if (found === undefined) throw new UsageError('which command? resizectl --help lists them');
  return found;
}

type Write = Pick<OutputConfiguration, 'writeOut' | 'writeErr'>;

function set(command: Command, write: Write): Command {
  return command
    .helpOption('-h, --help', 'print this and exit')
    .allowExcessArguments(false)
    .configureHelp({ helpWidth: 100 })
    .configureOutput(write)
    .exitOverride();
}

/** `get` and `describe`, which do nothing by themselves. */
function groupOf(program: Command, groups: Map<string, Command>, name: string, write: Write): Command {
  const known = groups.get(name);
  if (known !== undefined) return known;
  const summaries = commandTexts.filter((text) => text.name.startsWith(`${name} `)).map(({ summary }) => summary);
  const rests = commandTexts.flatMap((text) =>
    text.name.startsWith(`${name} `) ? [text.name.slice(name.length + 1)] : [],
  );
  const group = set(new Command(name), write)
    .description(summaries.join('; '))
    .helpCommand(false)
    .allowExcessArguments(true)
    .action(() => {
      const [other] = group.args;
      if (other !== undefined) throw new UsageError(`unknown command '${other}'; resizectl ${name} --help lists them`);
      throw new UsageError(`${name} what? ${rests.join(', ')}; resizectl ${name} --help tells more`);
    });
  program.addCommand(group);
  groups.set(name, group);
  return group;
}

interface Given {
  readonly options: CommandOptions;
  readonly endpoint: string;
  readonly output: Output;
}

function commandOf(
  text: CommandText,
  name: string,
  write: Write,
  met: (args: readonly string[], given: Given) => void,
): Command {
  const command = set(new Command(name), write).summary(text.summary).description(paragraphs(text));
  for (const { form, description } of text.arguments) command.argument(form, description);
  for (const option of text.options) command.addOption(optionOf(option));
  return command.action(() => {
    const {
      endpoint = defaultEndpoint,
      output = 'table',
      ...options
    } = command.optsWithGlobals<CommandOptions & { endpoint?: string; output?: Output }>();
    met(command.args, { options, endpoint, output });
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
