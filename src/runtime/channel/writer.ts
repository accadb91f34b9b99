import { MiB } from '../../core/quantities/index.ts';
import type { Socket } from 'node:net';

/** Up to this many bytes, a copy costs less than a gathered write. */
const GATHER_LIMIT = 65_536;
/** Bytes that wait for the socket above which no further call begins. The kernel's buffer is full by then. */
export const BACKLOG_LIMIT = 65_536;
/** Bytes that wait for the socket above which the server is not read: answers to its frames pile up. */
const OWN_BACKLOG_LIMIT = MiB;
/** How long a frame that is not urgent waits for another one, in milliseconds. */
const DEFER_MS = 5;
/** Frames that wait for another one. */
const MAX_DEFERRED = 64;

/** Writes frames to a socket. What is written in one turn of the event loop leaves in one write. */
export class Writer {
  readonly #socket: Socket;
  #pending: Buffer[] = [];
  #size = 0;
  #isScheduled = false;
  #deferred: Buffer[] = [];
  #timer: NodeJS.Timeout | undefined;
  readonly #flush = (): void => this.flush();

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  write(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#size += bytes.length;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    process.nextTick(this.#flush);
  }

  /**
   * Writes a frame that is not urgent, together with the next one: a write of its own for the answer to each PING would cost as much as a
   * call. Go servers send one for every burst of data.
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
    const socket = this.#socket;
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

  /** Whether so much waits for the server that it is not read. */
  get isStuck(): boolean {
    return this.#waiting > OWN_BACKLOG_LIMIT;
  }

  /** Writes what waits, and nothing after it. */
  close(): void {
    this.flush();
    clearTimeout(this.#timer);
  }

  get #waiting(): number {
    return this.#size + this.#socket.writableLength;
  }

  #deferredOver(): void {
    this.#timer = undefined;
    if (this.#deferred.length > 0) this.flush();
  }
}
