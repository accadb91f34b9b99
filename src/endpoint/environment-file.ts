import { isUtf8 } from 'node:buffer';

/** A variable and its value. */
export type Assignment = readonly [name: string, value: string];

/**
 * Reads the assignments in an environment file as systemd does (systemd.exec(5), EnvironmentFile=; parse_env_file_internal in
 * src/basic/env-file.c, release 257): a quoted value may have several lines, a backslash continues a line, and a value without quotes ends
 * with its line. systemd ignores names that a shell could not set, such as `export A`.
 */
export function assignmentsIn(text: string): readonly Assignment[] {
  return allIn(text).filter(([name]) => /^[A-Za-z_]\w*$/.test(name));
}

/**
 * Returns what systemd cannot read in an environment file: a name or a value that is not valid UTF-8, also of a name that it would ignore.
 * It then takes nothing of the file (load_env_file_push in src/basic/env-file.c). It does not check comments. Returns undefined for a file
 * that it can read.
 */
export function invalidTextIn(file: Buffer): string | undefined {
  const isValid = (text: string): boolean => isUtf8(Buffer.from(text, 'latin1'));
  // Each byte is one character. What separates names and values is ASCII.
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

/** The states are those of systemd's parser. */
class Reader {
  readonly found: Assignment[] = [];
  #state: State = 'before name';
  #name = '';
  #value = '';
  /** Length of the value without the blanks at its end. Blanks in quotes count, and blanks before a backslash. */
  #end = 0;

  read(character: string): void {
    this.#state = this.#next[this.#state](character);
  }

  /** The end of the text ends a value, also inside of quotes. */
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
      // As in a shell, a backslash in double quotes counts only before these.
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
