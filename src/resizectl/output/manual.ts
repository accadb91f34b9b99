import { version } from '../../core/index.ts';
import { commandTexts } from '../command-table.ts';
import {
  type CommandText,
  defaultEndpoint,
  exitTexts,
  globalOptions,
  type OptionText,
  programText,
} from '../command-texts.ts';

/** Returns resizectl(1) in troff (man(7)), generated from the command table. */
export function manualPage(): string {
  const { name, summary, description } = programText;
  return [
    `.TH ${name.toUpperCase()} 1 "" "cri-resize-shim ${version}" "User Commands"`,
    ...section('NAME', [`${escaped(name)} \\- ${escaped(summary)}`]),
    ...section(
      'SYNOPSIS',
      commandTexts.flatMap((text, index) => [...(index > 0 ? ['.br'] : []), synopsis(text)]),
    ),
    ...section('DESCRIPTION', paragraphs(description)),
    ...section('COMMANDS', commandTexts.flatMap(commandLines)),
    ...section('OPTIONS', globalOptions.flatMap(optionLines)),
    ...section(
      'EXIT STATUS',
      exitTexts.flatMap(([code, meaning]) => ['.TP', `.B ${code}`, escaped(meaning)]),
    ),
    ...section('FILES', [
      '.TP',
      `.I ${escaped(defaultEndpoint.replace('unix://', ''))}`,
      'The socket of the resize API.',
    ]),
    ...section('SEE ALSO', ['.BR crictl (1),', '.BR kubectl (1)']),
    '',
  ].join('\n');
}

const section = (title: string, lines: readonly string[]): string[] => [`.SH ${title}`, ...lines];

const paragraphs = (texts: readonly string[]): string[] =>
  texts.flatMap((text, index) => [...(index > 0 ? ['.PP'] : []), escaped(text)]);

const synopsis = ({ name, arguments: args }: CommandText): string =>
  [
    `\\fB${escaped(`resizectl ${name}`)}\\fR`,
    ...args.map(({ form }) => `\\fI${escaped(form.replace(/[<>]/g, ''))}\\fR`),
  ].join(' ');

function commandLines(text: CommandText): string[] {
  const { summary, description, options, examples } = text;
  return [
    '.SS',
    synopsis(text).replace('resizectl ', ''),
    `${escaped(summary.charAt(0).toUpperCase() + summary.slice(1))}.`,
    ...(description.length > 0 ? ['.PP', ...paragraphs(description)] : []),
    ...options.flatMap(optionLines),
    ...examples.flatMap(([line, what]) => [
      '.PP',
      ...(what === '' ? [] : [`${escaped(what.charAt(0).toUpperCase() + what.slice(1))}:`]),
      '.RS 4',
      '.nf',
      escaped(line),
      '.fi',
      '.RE',
    ]),
  ];
}

const optionLines = ({ flags, description }: OptionText): string[] => [
  '.TP',
  `\\fB${escaped(flags)}\\fR`,
  escaped(description),
];

/** Escapes text for troff: no escapes, no control character at a line's start, hyphens that can be copied. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll("'", '\\(aq').replace(/^\./gm, '\\&.');
}
