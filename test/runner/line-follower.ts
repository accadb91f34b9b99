import { closeSync, type FSWatcher, openSync, readSync, watch } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';

/** Reads a file to which others append, line by line. Creates the file if it does not exist. */
export class LineFollower {
  readonly #descriptor: number;
  readonly #watcher: FSWatcher;
  readonly #chunk = Buffer.alloc(65_536);
  readonly #decoder = new StringDecoder('utf8');
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(file: string, onLine: (line: string) => void) {
    this.#onLine = onLine;
    this.#descriptor = openSync(file, 'a+');
    this.#watcher = watch(file, () => this.#read());
    // Reads lines that were written before the watch began.
    this.#read();
  }

  /** Reports the lines written so far, and stops. */
  close(): void {
    this.#watcher.close();
    this.#read();
    closeSync(this.#descriptor);
  }

  #read(): void {
    for (let size = 0; (size = readSync(this.#descriptor, this.#chunk)) > 0; ) {
      const lines = (this.#rest + this.#decoder.write(this.#chunk.subarray(0, size))).split('\n');
      this.#rest = lines.pop() ?? '';
      for (const line of lines) this.#onLine(line);
    }
  }
}
