import { ErrorCode, LARGEST_STREAM, goaway, ping } from '../http2/index.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Side } from './observer.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Outbox } from './transport/index.ts';

/** Opaque data of the PING that follows the first GOAWAY: eight bytes that no other PING is likely to carry. */
const PING_DATA = Buffer.from('shutdown');
const SHUTTING_DOWN = 'shutting down';

/** What {@link GracefulShutdown} uses of the connection. */
export interface GracefulShutdownPorts {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle: Lifecycle;
  readonly toClient: Outbox;
  run(side: Side, action: () => void): void;
  /** Sends GOAWAY with the last stream that the client has opened. */
  goAway(message: string): void;
}

/**
 * A shutdown in the two steps of RFC 9113 6.8. The first GOAWAY names no last stream, so calls that the client began
 * before it received that GOAWAY are served. The client's answer to a PING shows that it has received it; the second
 * GOAWAY then names the last stream.
 */
export class GracefulShutdown {
  #state: 'none' | 'requested' | 'announced' | 'over' = 'none';
  #timer: NodeJS.Timeout | undefined;
  readonly #ports: GracefulShutdownPorts;

  constructor(ports: GracefulShutdownPorts) {
    this.#ports = ports;
  }

  /** Whether the shim has asked for a shutdown of this connection. */
  get isRequested(): boolean {
    return this.#state !== 'none';
  }

  /**
   * Sends the first GOAWAY. Before the backend's SETTINGS nothing may be sent to the client: the request is then only
   * recorded, and the connection calls this again when it opens.
   */
  request(): void {
    if (this.#state !== 'none' && this.#state !== 'requested') return;
    this.#state = 'requested';
    const { lifecycle, options, toClient } = this.#ports;
    const { kind } = lifecycle.state;
    // A draining client has received a GOAWAY already.
    if (kind === 'draining') this.#announceLast();
    if (kind !== 'open') return;
    this.#state = 'announced';
    toClient.push(goaway(LARGEST_STREAM, ErrorCode.NO_ERROR, Buffer.from(SHUTTING_DOWN)));
    toClient.push(ping(PING_DATA));
    this.#timer = setTimeout(
      () => this.#ports.run('client', () => this.#announceLast()),
      options.gracefulShutdownTimeout,
    );
  }

  /** The client has acknowledged a PING with these bytes. */
  pingAcknowledged(opaque: Uint8Array): void {
    if (this.#state === 'announced' && PING_DATA.equals(opaque)) this.#announceLast();
  }

  /** The connection has ended. */
  end(): void {
    clearTimeout(this.#timer);
    this.#state = 'over';
  }

  #announceLast(): void {
    clearTimeout(this.#timer);
    this.#state = 'over';
    this.#ports.goAway(SHUTTING_DOWN);
  }
}
