import type { Duplex } from 'node:stream';

/** One side of the switch as a byte stream. The switch is driven through this, by sockets or by a test. */
export interface Transport {
  /** Takes bytes in order. They may not be changed afterwards. */
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
  data(chunk: Buffer): void;
  /** The backlog is gone, after it was not. */
  drained(): void;
  /** The peer will send nothing more. */
  closed(error: Error | undefined): void;
}

/** Slices of a burst up to this are copied together: one small write costs less than a gathered one. */
const COPY_UP_TO = 16_384;

/** A socket, or half of a duplex pair, as a {@link Transport}. */
export class StreamTransport implements Transport {
  readonly #stream: Duplex;
  #paused = false;

  constructor(stream: Duplex, events: TransportEvents) {
    this.#stream = stream;
    let failure: Error | undefined;
    let over = false;
    const ended = (): void => {
      if (over) return;
      over = true;
      events.closed(failure);
    };
    stream.on('error', (error) => {
      failure ??= error;
    });
    stream.on('data', (chunk: Buffer) => {
      if (!over) events.data(chunk);
    });
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
    else if (size <= COPY_UP_TO) stream.write(Buffer.concat(slices, size));
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
}
