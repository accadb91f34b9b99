import type { Duplex } from 'node:stream';
import type { Transport, TransportEvents } from './transport.ts';

/**
 * Half of a duplex pair, whose other half a server of node:http2 holds, as a {@link Transport}.
 *
 * Nothing here goes through at once. A pair hands bytes over within `write`, so that an answer could reach the session while
 * it is still writing what is answered; node:http2 (20 to 24) then aborts the whole process with "Assertion failed:
 * session->is_reading_stopped()". So both directions wait for the next turn of the event loop, where no session is at work.
 */
export class PairTransport implements Transport {
  readonly #stream: Duplex;
  readonly #events: TransportEvents;
  #incoming: Buffer[] = [];
  #outgoing: Buffer[] = [];
  #outgoingSize = 0;
  #turn: NodeJS.Immediate | undefined;
  #ending = false;
  #destroying = false;
  /** Nothing more comes in. */
  #ended = false;
  #closed = false;
  #failure: Error | undefined;

  constructor(stream: Duplex, events: TransportEvents) {
    this.#stream = stream;
    this.#events = events;
    const ended = (): void => {
      this.#ended = true;
      this.#later();
    };
    stream.on('data', (chunk: Buffer) => {
      this.#incoming.push(chunk);
      this.#later();
    });
    stream.on('error', (error) => {
      this.#failure ??= error;
    });
    stream.on('drain', () => this.#later());
    stream.on('end', ended);
    stream.on('close', ended);
  }

  get backlog(): number {
    return this.#outgoingSize + this.#stream.writableLength;
  }

  write(slices: readonly Buffer[], size: number): void {
    // A copy: the session may look at it long after the pair has taken it.
    this.#outgoing.push(Buffer.concat(slices, size));
    this.#outgoingSize += size;
    this.#later();
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  end(): void {
    this.#ending = true;
    this.#later();
  }

  destroy(): void {
    this.#destroying = true;
    this.#later();
  }

  #later(): void {
    this.#turn ??= setImmediate(() => {
      this.#turn = undefined;
      this.#go();
    });
  }

  #go(): void {
    const incoming = this.#incoming;
    this.#incoming = [];
    for (const chunk of incoming) this.#events.data(chunk);
    if (this.#ended && !this.#closed) {
      this.#closed = true;
      this.#events.closed(this.#failure);
    }
    const outgoing = this.#outgoing;
    this.#outgoing = [];
    this.#outgoingSize = 0;
    if (this.#stream.writable) for (const bytes of outgoing) this.#stream.write(bytes);
    if (this.#ending && this.#stream.writable) this.#stream.end();
    if (this.#destroying) this.#stream.destroy();
    if (!this.#closed && this.#stream.writableLength === 0) this.#events.drained();
  }
}
