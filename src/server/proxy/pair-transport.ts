import { type Duplex, duplexPair } from 'node:stream';
import type { Transport, TransportEvents } from './transport.ts';

/**
 * The client's half of a {@link localPair} as a {@link Transport}. Ending it closes both directions: the server would
 * take the end of one direction for the end of both.
 *
 * Both directions are delayed to the next turn of the event loop, when no session is active. A pair hands bytes over
 * within `write`, so an answer could reach the session while it is still writing the request; node:http2 (Node 20 to
 * 24) then aborts the process with "Assertion failed: session->is_reading_stopped()".
 */
export class PairTransport implements Transport {
  #incoming: Buffer[] = [];
  #outgoing: Buffer[] = [];
  #outgoingSize = 0;
  #turn: NodeJS.Immediate | undefined;
  #closing = false;
  /** The other half has ended. */
  #ended = false;
  #closed = false;
  #failure: Error | undefined;

  constructor(
    private readonly stream: Duplex,
    private readonly events: TransportEvents,
  ) {
    const ended = (): void => {
      this.#ended = true;
      this.#schedule();
    };
    stream.on('data', (chunk: Buffer) => {
      this.#incoming.push(chunk);
      this.#schedule();
    });
    stream.on('error', (error) => {
      this.#failure ??= error;
    });
    stream.on('drain', () => this.#schedule());
    stream.on('end', ended);
    stream.on('close', ended);
  }

  get backlog(): number {
    return this.#outgoingSize + this.stream.writableLength;
  }

  write(slices: readonly Buffer[], size: number): void {
    // A copy, because the session may read it long after the pair has accepted it.
    this.#outgoing.push(Buffer.concat(slices, size));
    this.#outgoingSize += size;
    this.#schedule();
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  end(): void {
    this.#closing = true;
    this.#schedule();
  }

  destroy(): void {
    this.#closing = true;
    this.#schedule();
  }

  #schedule(): void {
    this.#turn ??= setImmediate(() => {
      this.#turn = undefined;
      this.#transfer();
    });
  }

  #transfer(): void {
    const incoming = this.#incoming;
    this.#incoming = [];
    for (const chunk of incoming) this.events.data(chunk);
    if (this.#ended && !this.#closed) {
      this.#closed = true;
      this.events.closed(this.#failure);
    }
    const outgoing = this.#outgoing;
    this.#outgoing = [];
    this.#outgoingSize = 0;
    if (this.stream.writable) for (const bytes of outgoing) this.stream.write(bytes);
    if (this.#closing) this.stream.destroy();
    if (!this.#closed && this.stream.writableLength === 0) this.events.drained();
  }
}

/**
 * Returns a pair of connected streams: one for a node:http2 server, and one for its client, {@link PairTransport}. When
 * the client's half is destroyed, so is the server's, at once. Node's own pair only ends it, and node:http2 then closes
 * its side of a stream without a socket while calls still run. Their answers end the process (`kCurrentShutdownRequest
 * === null` in JSStreamSocket).
 */
export function localPair(): readonly [server: Duplex, client: Duplex] {
  const [server, client] = duplexPair();
  client._destroy = (error, callback) => {
    server.destroy();
    callback(error);
  };
  return [server, client];
}
