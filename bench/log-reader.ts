import { closeSync, type FSWatcher, openSync, readSync, watch } from 'node:fs';

type Fields = Readonly<Record<string, unknown>>;

/** Reads a growing log of JSON lines. */
export class LogReader {
  readonly #descriptor: number;
  readonly #watcher: FSWatcher;
  readonly #chunk = Buffer.alloc(65_536);
  readonly #unread: Fields[] = [];
  #rest = '';
  #changed: () => void = () => undefined;

  constructor(file: string) {
    this.#descriptor = openSync(file, 'r');
    this.#watcher = watch(file, () => this.#changed());
  }

  /** Returns the next line with this message when it has been written. Skips lines before it. */
  async line(message: string): Promise<Fields> {
    for (;;) {
      const changed = new Promise<void>((resolve) => (this.#changed = resolve));
      this.#read();
      for (let next = this.#unread.shift(); next !== undefined; next = this.#unread.shift())
        if (next['msg'] === message) return next;
      await changed;
    }
  }

  close(): void {
    this.#watcher.close();
    closeSync(this.#descriptor);
  }

  #read(): void {
    for (let size = 0; (size = readSync(this.#descriptor, this.#chunk)) > 0; ) {
      const lines = (this.#rest + this.#chunk.toString('utf8', 0, size)).split('\n');
      this.#rest = lines.pop() ?? '';
      this.#unread.push(...lines.map((line) => JSON.parse(line) as Fields));
    }
  }
}
