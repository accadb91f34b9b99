import { closeSync, readFileSync, readSync } from 'node:fs';

/** Maximum number of open files: those of 128 containers. Each uses a page of kernel memory (fs/seq_file.c). */
export const MAX_OPEN_FILES = 512;
/** Fraction of the process's descriptors that open files may use: connections need the others. */
const SHARE = 8;

/** Buffer for synchronous reads. Larger than any file that they read: these contain one or two numbers. */
const scratch = Buffer.alloc(4096);

/** A file of a cgroup that stays open, with its last content. */
export class OpenFile {
  /** Whether it has been read since it was last a candidate to be closed. */
  isUsed = true;
  /** The content at the last read, without the last newline. */
  text = '';
  /** The result of the last {@link #parse}, of {@link #parsedText}. */
  #parsed: unknown;
  #parsedText: string | undefined;
  #parse: ((text: string) => unknown) | undefined;

  /** @param closed called when it is closed */
  constructor(
    readonly descriptor: number,
    readonly closed: () => void,
  ) {}

  /** Reads the content. Reads at positions, since the file stays open. */
  read(): void {
    this.isUsed = true;
    this.text = readText(this.descriptor, this.text);
  }

  /** Returns the parsed content. Does not parse the same content again. The value must not be changed. */
  parsed<Value>(parse: (text: string) => Value): Value {
    if (this.#parsedText === this.text && this.#parse === parse) return this.#parsed as Value;
    const value = parse(this.text);
    this.#parsed = value;
    this.#parsedText = this.text;
    this.#parse = parse;
    return value;
  }
}

/**
 * Files of cgroups that stay open, so that reading one again takes one system call instead of three. Beyond the limit,
 * a file is closed that has not been read for long: the oldest one that was not read since the last time.
 */
export class OpenFiles {
  readonly #limit: number;
  /** The next candidate to be closed is the first. */
  readonly #files = new Set<OpenFile>();

  constructor(limit = Math.min(MAX_OPEN_FILES, Math.floor(descriptorLimit() / SHARE))) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#files.size;
  }

  /** Stores an open file. The caller must not close the descriptor afterwards. */
  keep(file: OpenFile): void {
    this.#files.add(file);
    if (this.#files.size > this.#limit) this.#dropOne();
  }

  /** Closes a file. */
  drop(file: OpenFile): void {
    if (!this.#files.delete(file)) return;
    file.closed();
    closeSync(file.descriptor);
  }

  /** Closes all files: the process has no free descriptor. */
  clear(): void {
    for (const file of [...this.#files]) this.drop(file);
  }

  #dropOne(): void {
    for (const file of this.#files) {
      if (!file.isUsed) {
        this.drop(file);
        return;
      }
      file.isUsed = false;
      this.#files.delete(file);
      this.#files.add(file);
    }
  }
}

/** Returns this process's descriptor limit (proc(5), /proc/pid/limits). 0 if unreadable: no file stays open then. */
function descriptorLimit(): number {
  let limits: string;
  try {
    limits = readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return 0;
  }
  const [, soft] = /^Max open files +(\d+) /m.exec(limits) ?? [];
  // Without a number the limit is "unlimited".
  return soft === undefined ? Infinity : Number(soft);
}

/**
 * Returns the content of a short file without the last newline.
 * @param last the content at the last read; returned itself if it is the same
 */
function readText(descriptor: number, last: string): string {
  const size = readSync(descriptor, scratch, 0, scratch.length, 0);
  if (size === scratch.length) return readLong(descriptor).replace(/\n$/, '');
  const length = size > 0 && scratch[size - 1] === 0x0a ? size - 1 : size;
  return isInScratch(last, length) ? last : scratch.toString('utf8', 0, length);
}

/** Whether the first bytes of {@link scratch} are this text. Not for letters outside ASCII. */
function isInScratch(text: string, length: number): boolean {
  if (text.length !== length) return false;
  for (let at = 0; at < length; at += 1) {
    const code = text.charCodeAt(at);
    if (code !== scratch[at] || code > 0x7f) return false;
  }
  return true;
}

function readLong(descriptor: number): string {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const size = readSync(descriptor, scratch, 0, scratch.length, at);
    if (size === 0) return Buffer.concat(chunks).toString();
    chunks.push(Buffer.from(scratch.subarray(0, size)));
    at += size;
  }
}
