import { ErrorCode, goaway, LARGEST_STREAM, ping } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';

/** Opaque data of the PING that follows the first GOAWAY: eight bytes that no other PING is likely to carry. */
const PING_DATA = Buffer.from('shutdown');
const SHUTTING_DOWN = 'shutting down';

/**
 * A shutdown in the two steps of RFC 9113 6.8. The first GOAWAY names no last stream, so calls that the client began
 * before it received that GOAWAY are served. The client's answer to a PING shows that it has received it; the second
 * GOAWAY then names the last stream.
 *
 * The first GOAWAY waits until the client has acknowledged the backend's first SETTINGS. grpc-js starts its waiting
 * calls when it reads those SETTINGS, and sends them together with the acknowledgement. If the same read has a GOAWAY,
 * nghttp2 refuses all of them. grpc-js repeats a refused call only once.
 */
export class GracefulShutdown {
  #state: 'none' | 'requested' | 'announced' | 'over' = 'none';
  #timer: NodeJS.Timeout | undefined;
  #turn: NodeJS.Immediate | undefined;

  constructor(private readonly parts: ConnectionParts) {}

  /** Whether the shim has asked for a shutdown of this connection. */
  get isRequested(): boolean {
    return this.#state !== 'none';
  }

  /** Starts the shutdown. Before the backend's SETTINGS nothing may be sent to the client. */
  request(): void {
    if (this.#state !== 'none') return;
    this.#state = 'requested';
    this.proceed();
  }

  /**
   * Continues a shutdown that was requested. To be called when the connection opens, and when the client has
   * acknowledged the backend's first SETTINGS.
   */
  proceed(): void {
    if (this.#state !== 'requested') return;
    const { backend, lifecycle, options } = this.parts;
    const { kind } = lifecycle.state;
    if (kind === 'draining' || (kind === 'open' && backend.settingsAcknowledged)) this.#announce();
    else if (kind === 'opening') this.#after(options.refuseTimeout, () => this.#giveUp());
    else if (kind === 'open') this.#after(options.gracefulShutdownTimeout, () => this.#announce());
  }

  /** The client has acknowledged a PING with these bytes. */
  pingAcknowledged(opaque: Uint8Array): void {
    if (this.#state === 'announced' && PING_DATA.equals(opaque)) this.#announceLast();
  }

  /** The connection has ended. */
  end(): void {
    this.#stopTimer();
    this.#state = 'over';
  }

  #announce(): void {
    const { lifecycle, options, toClient } = this.parts;
    // A draining client has received a GOAWAY already.
    if (lifecycle.state.kind === 'draining') {
      this.#announceLast();
      return;
    }
    this.#state = 'announced';
    toClient.push(goaway(LARGEST_STREAM, ErrorCode.NO_ERROR, Buffer.from(SHUTTING_DOWN)));
    toClient.push(ping(PING_DATA));
    this.#after(options.gracefulShutdownTimeout, () => this.#announceLast());
  }

  /** The backend does not answer, so no call has begun: the client makes its calls on another connection. */
  #giveUp(): void {
    if (this.parts.lifecycle.state.kind === 'opening') this.parts.end(SHUTTING_DOWN);
  }

  #announceLast(): void {
    this.#stopTimer();
    this.#state = 'over';
    this.parts.goAway(SHUTTING_DOWN);
  }

  /** Runs an action after a time, in place of the one that waits. */
  #after(milliseconds: number, action: () => void): void {
    this.#stopTimer();
    this.#timer = setTimeout(() => this.#whenRead(action), milliseconds);
  }

  /**
   * Runs an action when all received bytes have been read. After a long turn of the event loop, timers run before the
   * sockets are read: the bytes that the timer waits for may have arrived in time. A client that sends without pause
   * always has unread frames, so it gets the same time only once more.
   */
  #whenRead(action: () => void, until = this.#now() + this.parts.options.gracefulShutdownTimeout): void {
    this.#turn = setImmediate(() => {
      if (this.parts.client.reader.paused && this.#now() < until) this.#whenRead(action, until);
      else this.parts.run('client', action);
    });
  }

  #now(): number {
    return this.parts.options.now();
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#turn);
  }
}
