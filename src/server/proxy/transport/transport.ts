import type { OnReadOpts, Socket } from 'node:net';
import { bufferUsed } from '../../../core/memory/index.ts';
import { ReusedMemory } from '../../http2/index.ts';

/** One side of a proxied connection as a byte stream: a socket, an in-process pair, or a test's fake. */
export interface Transport {
  /** Writes bytes in order. They must not change until {@link backlog} is 0 again. */
  write(slices: readonly Buffer[], size: number): void;
  /** Bytes that were written and have not left the process. */
  readonly backlog: number;
  /** Stops reading. One more chunk may still come. */
  pause(): void;
  /** Continues reading. */
  resume(): void;
  /** Sends what was written, then closes this direction. */
  end(): void;
  /** Closes both directions at once. */
  destroy(): void;
}

/** Receives a transport's events. `closed` is the last one. */
export interface TransportEvents {
  /** Handles a chunk. Returns whether its memory can be reused for the next one. */
  data(chunk: Buffer): boolean;
  /** The backlog has become 0. */
  drained(): void;
  /** The peer sends nothing more. */
  closed(error: Error | undefined): void;
}

/** The most bytes that a socket reads at a time. */
const READ_SIZE = 65_536;

/** Reads a socket into the same memory again if the proxy no longer uses it. */
export class ReusedReads {
  readonly #memory = new ReusedMemory(READ_SIZE);
  #current = this.#memory.take();
  #data: (chunk: Buffer) => boolean = () => true;

  /** For `net.connect`. */
  readonly options: OnReadOpts = {
    buffer: () => this.#current,
    callback: (size) => {
      const current = this.#current;
      if (this.#data(current.subarray(0, size))) this.#memory.giveBack(current);
      else this.#current = this.#memory.take();
      return true;
    },
  };

  listen(data: (chunk: Buffer) => boolean): void {
    this.#data = data;
  }
}

/** Bursts up to this many bytes are copied into one buffer: one write costs less than a gathered write. */
const GATHER_LIMIT = 2 * READ_SIZE;

/** A socket as a {@link Transport}. Bytes that are not in its backlog have been handed to the kernel. */
export class SocketTransport implements Transport {
  readonly #stream: Socket;
  readonly #gathered = new ReusedMemory(GATHER_LIMIT);
  #paused = false;

  constructor(stream: Socket, events: TransportEvents, reads?: ReusedReads) {
    this.#stream = stream;
    let failure: Error | undefined;
    let over = false;
    const ended = (): void => {
      if (over) return;
      over = true;
      events.closed(failure);
    };
    const data = (chunk: Buffer): boolean => over || events.data(chunk);
    stream.on('error', (error) => {
      failure ??= error;
    });
    // With reused reads no chunk arrives here, but the listener is still needed for `end` to be emitted.
    stream.on('data', (chunk: Buffer) => {
      bufferUsed(chunk.length);
      data(chunk);
    });
    reads?.listen(data);
    stream.on('drain', () => {
      if (!over) events.drained();
    });
    stream.on('end', ended);
    stream.on('close', ended);
  }

  get backlog(): number {
    return this.#stream.writableLength;
  }

  write(slices: readonly Buffer[], size: number): void {
    const stream = this.#stream;
    const [first] = slices;
    if (!stream.writable || first === undefined) return;
    if (slices.length === 1) stream.write(first);
    else if (size <= GATHER_LIMIT) this.#gather(slices, size);
    else {
      stream.cork();
      for (const slice of slices) stream.write(slice);
      stream.uncork();
    }
  }

  pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#stream.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#stream.resume();
  }

  end(): void {
    if (this.#stream.writable) this.#stream.end();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  #gather(slices: readonly Buffer[], size: number): void {
    const stream = this.#stream;
    if (stream.writableLength === 0) this.#gathered.giveBack();
    const memory = this.#gathered.take();
    let at = 0;
    for (const slice of slices) {
      memory.set(slice, at);
      at += slice.length;
    }
    stream.write(memory.subarray(0, size));
  }
}
