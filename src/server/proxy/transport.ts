import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import { bufferUsed, MiB } from '../../core/index.ts';
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

  /**
   * Returns an accepted socket as one that reads into this memory, for which only `net.connect` has an option: a new
   * socket takes over its connection. Returns a socket that has read already, bytes or the end, as it is.
   */
  adopt(accepted: Socket): Socket {
    const inner = accepted as unknown as { _handle: object | null };
    const { _handle: handle } = inner;
    if (handle === null || accepted.bytesRead > 0 || accepted.readableEnded) return accepted;
    inner._handle = null;
    accepted.destroy();
    const taken = { handle, onread: this.options, readable: true, writable: true };
    return new Socket(taken as SocketConstructorOpts);
  }

  listen(data: (chunk: Buffer) => boolean): void {
    this.#data = data;
  }
}

/** Bursts up to this many bytes are copied into one buffer: one write costs less than a gathered write. */
const GATHER_LIMIT = 2 * READ_SIZE;
/** While earlier bytes wait for the kernel, bursts up to this many bytes join those that wait. */
const JOIN_LIMIT = 4096;
/** Block size in bytes for these waiting bursts. */
const JOIN_BLOCK = 16_384;

const NOTHING = Buffer.alloc(0);

/**
 * A socket as a {@link Transport}. Bytes that are not in its backlog have been handed to the kernel.
 *
 * While the peer does not read, waiting bytes need little additional memory. Each write to a busy stream costs some
 * hundred bytes of objects and keeps the chunk alive that contains its bytes. So small bursts are copied into blocks,
 * and each block is written at once.
 */
export class SocketTransport implements Transport {
  /** Memory for bursts while nothing waits. Whenever nothing waits, it is free. */
  #gathered: Buffer | undefined;
  /** The block that is being filled. */
  #block = NOTHING;
  /** Its bytes from here on have not been written to the stream. */
  #from = 0;
  #to = 0;
  /** Number of parts of blocks in the stream. When a part leaves, {@link #left} writes the bytes added meanwhile. */
  #parts = 0;
  #paused = false;
  #over = false;

  constructor(
    private readonly stream: Socket,
    private readonly events: TransportEvents,
    reads?: ReusedReads,
  ) {
    let failure: Error | undefined;
    const ended = (): void => {
      if (this.#over) return;
      this.#over = true;
      events.closed(failure);
    };
    const data = (chunk: Buffer): boolean => this.#over || events.data(chunk);
    stream.on('error', (error) => {
      failure ??= error;
    });
    // With reused reads no chunk arrives here, but the listener is still needed for `end` to be emitted.
    stream.on('data', (chunk: Buffer) => {
      bufferUsed(chunk.length);
      data(chunk);
    });
    reads?.listen(data);
    stream.on('drain', () => this.#left());
    stream.on('end', ended);
    stream.on('close', ended);
  }

  get backlog(): number {
    return this.stream.writableLength + this.#to - this.#from;
  }

  write(slices: readonly Buffer[], size: number): void {
    const stream = this.stream;
    const [first] = slices;
    if (!stream.writable || first === undefined) return;
    if (this.backlog > 0) this.#wait(slices, size);
    else if (slices.length === 1) stream.write(first);
    else if (size <= GATHER_LIMIT) this.#gather(slices, size);
    else this.#writeAll(slices);
  }

  pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.stream.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.stream.resume();
  }

  end(): void {
    if (!this.stream.writable) return;
    this.#flushBlock();
    this.stream.end();
  }

  destroy(): void {
    this.#from = this.#to;
    this.stream.destroy();
  }

  #gather(slices: readonly Buffer[], size: number): void {
    this.#gathered ??= Buffer.allocUnsafeSlow(GATHER_LIMIT);
    copyAll(slices, this.#gathered, 0);
    this.stream.write(this.#gathered.subarray(0, size));
  }

  #writeAll(slices: readonly Buffer[]): void {
    const stream = this.stream;
    stream.cork();
    for (const slice of slices) stream.write(slice);
    stream.uncork();
  }

  /** Writes behind bytes that wait for the kernel. */
  #wait(slices: readonly Buffer[], size: number): void {
    if (size > JOIN_LIMIT) {
      this.#flushBlock();
      this.#writeAll(size <= GATHER_LIMIT && slices.length > 1 ? [Buffer.concat(slices, size)] : slices);
      return;
    }
    if (this.#to + size > this.#block.length) {
      this.#flushBlock();
      this.#block = Buffer.allocUnsafeSlow(JOIN_BLOCK);
      bufferUsed(JOIN_BLOCK);
      this.#from = 0;
      this.#to = 0;
    }
    copyAll(slices, this.#block, this.#to);
    this.#to += size;
    if (this.#parts === 0) this.#flushBlock();
  }

  /** Writes the bytes of the block that have not been written. */
  #flushBlock(): void {
    if (this.#from === this.#to) return;
    const bytes = this.#block.subarray(this.#from, this.#to);
    this.#from = this.#to;
    if (!this.stream.writable) return;
    this.#parts += 1;
    this.stream.write(bytes, () => {
      this.#parts -= 1;
      this.#left();
    });
  }

  /** The kernel has taken bytes that waited. */
  #left(): void {
    this.#flushBlock();
    if (this.#over || this.backlog > 0) return;
    this.#from = 0;
    this.#to = 0;
    this.events.drained();
  }
}

function copyAll(slices: readonly Buffer[], target: Buffer, from: number): void {
  let at = from;
  for (const slice of slices) {
    target.set(slice, at);
    at += slice.length;
  }
}

/** Bytes of backlog at which the proxy stops reading for a side. The kernel's socket buffers are full by then. */
const BACKLOG_LIMIT = 65_536;
/** Bytes of backlog at which the proxy stops reading a side itself: answers to its pings, settings and DATA pile up. */
const OWN_BACKLOG_LIMIT = MiB;

/**
 * Pauses and resumes transports, so that the proxy reads from no side faster than the others take the data.
 * @param reads whether each side is to be read at all
 * @param isFull whether what waits for all clients has reached its limit
 */
export function balance(
  client: Transport,
  backend: Transport | undefined,
  locals: Iterable<Transport>,
  reads: { readonly client: boolean; readonly backend: boolean },
  isFull: boolean,
): void {
  const { backlog } = client;
  const forClient = backlog <= BACKLOG_LIMIT;
  let fromClient = reads.client && backlog <= (isFull ? BACKLOG_LIMIT : OWN_BACKLOG_LIMIT);
  if (backend !== undefined) {
    setReading(backend, reads.backend && forClient && backend.backlog <= OWN_BACKLOG_LIMIT);
    fromClient &&= backend.backlog <= BACKLOG_LIMIT;
  }
  for (const local of locals) {
    setReading(local, forClient && local.backlog <= OWN_BACKLOG_LIMIT);
    fromClient &&= local.backlog <= BACKLOG_LIMIT;
  }
  setReading(client, fromClient);
}

function setReading(transport: Transport, reading: boolean): void {
  if (reading) transport.resume();
  else transport.pause();
}
