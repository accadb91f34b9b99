import type { OnReadOpts, Socket } from 'node:net';
import { LentMemory } from '../../http2/index.ts';

/** One side of the switch as a byte stream. The switch is driven through this, by sockets or by a test. */
export interface Transport {
  /** Takes bytes in order. They are used until {@link backlog} is 0 again, and no longer. */
  write(slices: readonly Buffer[], size: number): void;
  /** Bytes taken and not yet out of the process. */
  readonly backlog: number;
  /** Stops and starts the bytes that come in. A chunk may still come after `pause`. */
  pause(): void;
  resume(): void;
  /** Sends what was written, then closes this direction. */
  end(): void;
  /** Closes at once, both directions. */
  destroy(): void;
}

/** What a transport tells. After `closed` nothing more comes. */
export interface TransportEvents {
  /** Returns whether nobody needs the chunk's bytes any more, so that its memory can be used for the next one. */
  data(chunk: Buffer): boolean;
  /** The backlog is gone, after it was not. */
  drained(): void;
  /** The peer will send nothing more. */
  closed(error: Error | undefined): void;
}

/** What a socket reads at most at a time. */
const READ_SIZE = 65_536;

/** Reads a socket into the same memory again and again, where the switch is done with it. */
export class ReusedReads {
  readonly #memory = new LentMemory(READ_SIZE);
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

/** Slices of a burst up to this are copied together: one write costs less than a gathered one. */
const GATHER_UP_TO = 2 * READ_SIZE;

/** A socket as a {@link Transport}. What a socket has taken without a backlog is with the kernel. */
export class SocketTransport implements Transport {
  readonly #stream: Socket;
  readonly #gathered = new LentMemory(GATHER_UP_TO);
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
    // Without chunks where the reads are reused; then it is what makes `end` come.
    stream.on('data', data);
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
    else if (size <= GATHER_UP_TO) this.#gather(slices, size);
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
