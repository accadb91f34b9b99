import { connect, type Socket } from 'node:net';
import { MiB, steadyNow } from '../../core/index.ts';

/** The buffer of reads. One memory for all sockets: its bytes are handled before the next read of any of them. */
const memory = Buffer.allocUnsafeSlow(65_536);
/** How long the server may take to close a connection that was ended here, in milliseconds. */
const LINGER_MS = 1000;

export interface SocketEvents {
  /** Handles bytes, which are valid until it returns. */
  data(bytes: Buffer): void;
  /** The written bytes have left the process. @param pausedMs how long nothing was read before, in milliseconds */
  drained(pausedMs: number): void;
  /** The server has closed the connection, or there is none. Not called after {@link ServerSocket.end}. */
  lost(error: Error | undefined): void;
}

/** The socket of one connection. */
export class ServerSocket {
  readonly writer: Writer;
  readonly #socket: Socket;
  #isOver = false;
  /** Since when nothing is read, by steadyNow. */
  #pausedAt: number | undefined;

  /** Connects to a unix socket. */
  constructor(
    path: string,
    private readonly events: SocketEvents,
  ) {
    const read = (size: number): boolean => {
      if (!this.#isOver) this.#read(memory.subarray(0, size));
      return true;
    };
    const socket = connect({ path, onread: { buffer: memory, callback: read } });
    this.#socket = socket;
    this.writer = new Writer(socket);
    let failure: Error | undefined;
    const lost = (): void => this.#lost(failure);
    socket.on('error', (error) => (failure ??= error));
    socket.on('drain', () => this.#drained());
    socket.on('end', lost);
    socket.on('close', lost);
    // No data arrives here, but `end` is only emitted if the stream is read.
    socket.resume();
  }

  /** Sends what was written, and closes the connection. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.writer.close();
    const socket = this.#socket;
    const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
    socket.end();
    // A paused socket would not see that the server closes it.
    socket.resume();
  }

  #read(bytes: Buffer): void {
    this.events.data(bytes);
    if (!this.writer.isStuck) return;
    this.#pausedAt ??= steadyNow();
    this.#socket.pause();
  }

  #drained(): void {
    if (this.#isOver) return;
    const now = steadyNow();
    const pausedMs = now - (this.#pausedAt ?? now);
    this.#pausedAt = undefined;
    this.#socket.resume();
    this.events.drained(pausedMs);
  }

  #lost(error: Error | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.writer.close();
    this.#socket.destroy();
    this.events.lost(error);
  }
}

/** Up to this many bytes, a copy costs less than a gathered write. */
const GATHER_LIMIT = 65_536;
/** Limit of unsent bytes, above which no new call begins. The kernel's socket buffer is full by then. */
export const BACKLOG_LIMIT = 65_536;
/** Limit of bytes that wait for the socket, above which nothing is read: answers to the server's frames accumulate. */
const OWN_BACKLOG_LIMIT = MiB;
/** How long a frame that is not urgent waits for another one, in milliseconds. */
const DEFER_MS = 5;
/** Maximum number of deferred frames. */
const MAX_DEFERRED = 64;

/** Writes frames to a socket. What is written in one turn of the event loop leaves in one write. */
export class Writer {
  #pending: Buffer[] = [];
  #size = 0;
  #isScheduled = false;
  #deferred: Buffer[] = [];
  #timer: NodeJS.Timeout | undefined;
  readonly #flush = (): void => this.flush();

  constructor(private readonly socket: Socket) {}

  write(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#size += bytes.length;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    process.nextTick(this.#flush);
  }

  /**
   * Writes a frame that is not urgent together with the next frame. Otherwise the answer to each PING would need its
   * own write, which costs as much as a call. Go servers send a PING for every burst of data.
   */
  defer(bytes: Buffer): void {
    this.#deferred.push(bytes);
    if (this.#deferred.length >= MAX_DEFERRED) this.flush();
    // Not cancelled when the frame leaves earlier: setting it for each call would cost more.
    else this.#timer ??= setTimeout(() => this.#deferredOver(), DEFER_MS).unref();
  }

  /** Writes everything that waits. */
  flush(): void {
    this.#isScheduled = false;
    for (const bytes of this.#deferred) this.#size += bytes.length;
    const buffers = this.#deferred.length === 0 ? this.#pending : [...this.#deferred, ...this.#pending];
    const size = this.#size;
    this.#deferred = [];
    this.#pending = [];
    this.#size = 0;
    const socket = this.socket;
    const [first] = buffers;
    if (first === undefined || !socket.writable) return;
    if (buffers.length === 1) socket.write(first);
    else if (size <= GATHER_LIMIT) socket.write(Buffer.concat(buffers, size));
    else {
      socket.cork();
      for (const bytes of buffers) socket.write(bytes);
      socket.uncork();
    }
  }

  /** Whether so much waits for the server that no further call begins. */
  get isFull(): boolean {
    return this.#waiting > BACKLOG_LIMIT;
  }

  /** Whether so many bytes wait for the server that nothing is read from it. */
  get isStuck(): boolean {
    return this.#waiting > OWN_BACKLOG_LIMIT;
  }

  /** Writes what waits, and nothing after it. */
  close(): void {
    this.flush();
    clearTimeout(this.#timer);
  }

  get #waiting(): number {
    return this.#size + this.socket.writableLength;
  }

  #deferredOver(): void {
    this.#timer = undefined;
    if (this.#deferred.length > 0) this.flush();
  }
}
