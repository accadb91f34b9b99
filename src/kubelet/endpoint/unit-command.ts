import { isUtf8 } from 'node:buffer';

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
  /** The environment that systemd itself passes on: its own variables, and those of `PassEnvironment`. */
  readonly inherited?: readonly Assignment[];
}

/**
 * Returns the words with which systemd starts a unit (systemd.service(5), Command lines): a word `$NAME` expands to the
 * words of a variable, and `${NAME}`, also within a word, to its value. Environment files override `Environment`, later
 * ones the earlier, and both override inherited variables (systemd.exec(5)). The first word is the path of the program.
 * Returns none if there is no command, or if a systemctl before release 246 hides the variables. Words with blanks in
 * them are split: systemctl does not quote them.
 */
export function wordsOfUnit(unit: UnitCommand): readonly string[] {
  const [, path = '', command = ''] = /path=(.*?) ; argv\[\]=(.*?) ; ignore_errors=/s.exec(unit.execStart) ?? [];
  const [, ...args] = command.split(' ');
  if (path === '' || printedWords(unit.environment).includes(UNPRINTABLE)) return [];
  if (/ ; flags=[^;]*\bno-env-expand\b/.test(unit.execStartEx ?? '')) return [path, ...args];
  const variables = variablesOf(unit);
  return [path, ...args.flatMap((word) => expanded(word, variables))];
}

/** The text that systemctl before release 246 prints in place of a value with blanks. */
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

/** Splits a variable's value. Quotes may be unclosed. A backslash escapes any character (EXTRACT_UNQUOTE). */
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

/** Splits a list that systemctl prints. Values with special characters are in double quotes, with C escapes. */
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

/** A variable and its value. */
export type Assignment = readonly [name: string, value: string];

/**
 * Reads the assignments in an environment file as systemd does (systemd.exec(5), EnvironmentFile=;
 * parse_env_file_internal in src/basic/env-file.c, release 257): a quoted value may have several lines, a backslash
 * continues a line, and a value without quotes ends with its line. systemd ignores names that a shell could not set,
 * such as `export A`.
 */
export function assignmentsIn(text: string): readonly Assignment[] {
  return allIn(text).filter(([name]) => /^[A-Za-z_]\w*$/.test(name));
}

/**
 * Returns the name or the value in an environment file that is not valid UTF-8. systemd then ignores the whole file
 * (load_env_file_push in src/basic/env-file.c), even if it would ignore that name. It does not check comments. Returns
 * undefined for a file that systemd can read.
 */
export function invalidTextIn(file: Buffer): string | undefined {
  const isValid = (text: string): boolean => isUtf8(Buffer.from(text, 'latin1'));
  // Each byte becomes one character. The separators of names and values are ASCII.
  for (const [name, value] of allIn(file.toString('latin1'))) {
    if (!isValid(name)) return 'the name of a variable';
    if (!isValid(value)) return `the value of ${name}`;
  }
  return undefined;
}

function allIn(text: string): readonly Assignment[] {
  const reader = new Reader();
  for (const character of text) reader.read(character);
  reader.end();
  return reader.found;
}

const isNewline = (character: string): boolean => character === '\n' || character === '\r';
const isBlank = (character: string): boolean => isNewline(character) || character === ' ' || character === '\t';

type State =
  | 'before name'
  | 'name'
  | 'before value'
  | 'value'
  | 'escape'
  | 'single quotes'
  | 'double quotes'
  | 'escape in double quotes'
  | 'comment'
  | 'escape in comment';

/** Parses with the states of systemd's parser. */
class Reader {
  readonly found: Assignment[] = [];
  #state: State = 'before name';
  #name = '';
  #value = '';
  /** Length of the value without trailing blanks. Blanks in quotes or before a backslash count. */
  #end = 0;

  read(character: string): void {
    this.#state = this.#next[this.#state](character);
  }

  /** Ends a value at the end of the text, also within quotes. */
  end(): void {
    if (!['before name', 'name', 'comment', 'escape in comment'].includes(this.#state)) this.#assign();
  }

  readonly #next: Readonly<Record<State, (character: string) => State>> = {
    'before name': (character) => {
      if (character === '#' || character === ';') return 'comment';
      if (isBlank(character)) return 'before name';
      this.#name = character;
      return 'name';
    },
    name: (character) => {
      if (isNewline(character)) return 'before name';
      if (character === '=') return 'before value';
      this.#name += character;
      return 'name';
    },
    'before value': (character) => {
      if (isNewline(character)) return this.#assign();
      if (character === "'") return 'single quotes';
      if (character === '"') return 'double quotes';
      if (character === '\\') return 'escape';
      return isBlank(character) ? 'before value' : this.#add(character, 'value');
    },
    value: (character) => {
      if (isNewline(character)) return this.#assign();
      if (character === '\\') return this.#add('', 'escape');
      if (!isBlank(character)) return this.#add(character, 'value');
      this.#value += character;
      return 'value';
    },
    escape: (character) => this.#add(isNewline(character) ? '' : character, 'value'),
    'single quotes': (character) => (character === "'" ? 'before value' : this.#add(character, 'single quotes')),
    'double quotes': (character) => {
      if (character === '"') return 'before value';
      return character === '\\' ? 'escape in double quotes' : this.#add(character, 'double quotes');
    },
    'escape in double quotes': (character) => {
      if (character === '\n') return 'double quotes';
      // As in a shell, a backslash in double quotes escapes only these characters.
      return this.#add('"\\`$'.includes(character) ? character : `\\${character}`, 'double quotes');
    },
    comment: (character) => {
      if (isNewline(character)) return 'before name';
      return character === '\\' ? 'escape in comment' : 'comment';
    },
    // Before release 254, a backslash at the end of a comment made the next line a comment, too.
    'escape in comment': (character) => (isNewline(character) ? 'before name' : 'comment'),
  };

  #add(text: string, state: State): State {
    this.#value += text;
    this.#end = this.#value.length;
    return state;
  }

  #assign(): State {
    this.found.push([this.#name.replace(/[ \t\r\n]+$/, ''), this.#value.slice(0, this.#end)]);
    this.#value = '';
    this.#end = 0;
    return 'before name';
  }
}
