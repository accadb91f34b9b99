import type { Writable } from 'node:stream';

/**
 * Writes the lines of the log without ever waiting for their reader. A line that the kernel takes at once is written when this
 * returns, so that the last lines before a crash are not lost. Other lines wait in memory, up to a limit.
 */
export class BoundedWriter {
  readonly #stream: Writable;
  readonly #limit: number;
  readonly #dropped: () => void;

  /**
   * @param limit bytes that may wait
   * @param dropped called for each line that is not written
   */
  constructor(stream: Writable, limit: number, dropped: () => void) {
    this.#stream = stream;
    this.#limit = limit;
    this.#dropped = dropped;
    // The reader of the log is gone (EPIPE) or its disk is full: the shim must continue to serve calls.
    stream.on('error', () => undefined);
  }

  write(line: string): void {
    if (this.#stream.writable && this.#stream.writableLength + line.length <= this.#limit) this.#stream.write(line);
    else this.#dropped();
  }
}
