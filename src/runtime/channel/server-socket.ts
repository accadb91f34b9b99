import { type Socket, connect } from 'node:net';
import { steadyNow } from '../../core/concurrency/index.ts';
import { Writer } from './writer.ts';

/** What a read gets. One memory for all sockets: its bytes are handled before the next read of any of them. */
const memory = Buffer.allocUnsafeSlow(65_536);
/** How long the server may take to close a connection that was ended here, in milliseconds. */
const LINGER_MS = 1000;

export interface SocketEvents {
  /** Handles bytes, which are valid until it returns. */
  data(bytes: Buffer): void;
  /** What was written has left the process. @param pausedMs how long nothing was read before, in milliseconds */
  drained(pausedMs: number): void;
  /** The server has closed the connection, or there is none. Not called after {@link ServerSocket.end}. */
  lost(error: Error | undefined): void;
}

/** The socket of one connection. */
export class ServerSocket {
  readonly writer: Writer;
  readonly #socket: Socket;
  readonly #events: SocketEvents;
  #isOver = false;
  /** Since when nothing is read, by steadyNow. */
  #pausedAt: number | undefined;

  /** Connects to a unix socket. */
  constructor(path: string, events: SocketEvents) {
    this.#events = events;
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
    // No data arrives here, but without it `end` is not emitted.
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
    this.#events.data(bytes);
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
    this.#events.drained(pausedMs);
  }

  #lost(error: Error | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.writer.close();
    this.#socket.destroy();
    this.#events.lost(error);
  }
}
