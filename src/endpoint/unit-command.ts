import { type Assignment, assignmentsIn } from './environment-file.ts';

/** A unit's command and environment, as `systemctl show` prints them. */
export interface UnitCommand {
  /** `ExecStart`: `{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $FLAGS ; ignore_errors=no ; ... }`. */
  readonly execStart: string;
  /** `ExecStartEx`, since systemd 243: has `flags=no-env-expand` for a command that begins with `:`. */
  readonly execStartEx?: string | undefined;
  /** `Environment`: assignments, quoted where they have blanks. */
  readonly environment: string;
  /** `UnsetEnvironment`: names, or assignments that are removed only with this value. */
  readonly unsetEnvironment?: string | undefined;
  /** The texts of the environment files, in the order of the unit. */
  readonly files: readonly string[];
  /** What systemd itself hands down: its own variables, and those of `PassEnvironment`. */
  readonly inherited?: readonly Assignment[];
}

/**
 * Returns the words with which systemd starts a unit (systemd.service(5), Command lines): a word `$NAME` stands for the words of a
 * variable, `${NAME}` for its value, also as a part of a word. Environment files override `Environment`, later ones the earlier, and both
 * override what is inherited (systemd.exec(5)). The first word is the path of the program. Returns none if there is no command, or if a
 * systemctl before release 246 hides the variables. Words with blanks in them are split: systemctl does not quote them.
 */
export function wordsOfUnit(unit: UnitCommand): readonly string[] {
  const [, path = '', command = ''] = /path=(.*?) ; argv\[\]=(.*?) ; ignore_errors=/s.exec(unit.execStart) ?? [];
  const [, ...args] = command.split(' ');
  if (path === '' || printedWords(unit.environment).includes(UNPRINTABLE)) return [];
  if (/ ; flags=[^;]*\bno-env-expand\b/.test(unit.execStartEx ?? '')) return [path, ...args];
  const variables = variablesOf(unit);
  return [path, ...args.flatMap((word) => expanded(word, variables))];
}

/** What systemctl prints in place of a value with blanks before release 246. */
const UNPRINTABLE = '[unprintable]';

function variablesOf({ environment, unsetEnvironment = '', files, inherited = [] }: UnitCommand): Map<string, string> {
  const own = printedWords(environment).flatMap((word): Assignment[] => {
    const [, name, value] = /^(\w+)=(.*)$/s.exec(word) ?? [];
    return name === undefined || value === undefined ? [] : [[name, value]];
  });
  const variables = new Map([...inherited, ...own, ...files.flatMap(assignmentsIn)]);
  for (const word of printedWords(unsetEnvironment)) {
    const [name = '', value] = word.split(/=(.*)/s);
    if (value === undefined || variables.get(name) === value) variables.delete(name);
  }
  return variables;
}

/** Expands one word of a command (replace_env_argv in systemd's src/basic/env-util.c). */
function expanded(word: string, variables: ReadonlyMap<string, string>): readonly string[] {
  const [, name] = /^\$([^{$].*)$/s.exec(word) ?? [];
  if (name !== undefined) return valueWords(variables.get(name) ?? '');
  return [
    word.replaceAll(/\$\{(\w+)\}|\$\$/g, (_, key?: string) => (key === undefined ? '$' : (variables.get(key) ?? ''))),
  ];
}

/** Splits the value of a variable. Quotes may be left open; a backslash hides the next character, also in quotes (EXTRACT_UNQUOTE). */
function valueWords(text: string): readonly string[] {
  const words = text.match(/(?:"(?:\\.|[^"\\])*(?:"|$)|'(?:\\.|[^'\\])*(?:'|$)|\\.|[^\s"'\\])+/gs) ?? [];
  return words.map((word) =>
    word.replaceAll(
      /"((?:\\.|[^"\\])*)(?:"|$)|'((?:\\.|[^'\\])*)(?:'|$)|\\(.)/gs,
      (_, double?: string, single?: string, escaped?: string) =>
        escaped ?? (double ?? single ?? '').replaceAll(/\\(.)/gs, '$1'),
    ),
  );
}

/** Splits a list that systemctl prints: what has special characters is in double quotes, with the escapes of C. */
function printedWords(text: string): readonly string[] {
  const words = text.match(/"(?:\\.|[^"\\])*"|\S+/gs) ?? [];
  return words.map((word) => (word.startsWith('"') ? withoutEscapes(word.slice(1, -1)) : word));
}

const ESCAPES: Readonly<Record<string, string>> = { a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

const withoutEscapes = (text: string): string =>
  text.replaceAll(/\\([0-7]{3}|.)/gs, (_, key: string) =>
    key.length === 3 ? String.fromCharCode(Number.parseInt(key, 8)) : (ESCAPES[key] ?? key),
  );

/** Reads the output of `systemctl show-environment`: `NAME=value`, or `NAME=$'...'` with the escapes of C. */
export function printedVariables(text: string): readonly Assignment[] {
  return text.split('\n').flatMap((line): Assignment[] => {
    const [, name, quoted, plain] = /^(\w+)=(?:\$'(.*)'|(.*))$/s.exec(line) ?? [];
    return name === undefined ? [] : [[name, quoted === undefined ? (plain ?? '') : withoutEscapes(quoted)]];
  });
}
