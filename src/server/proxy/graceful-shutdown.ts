import type { Switch } from './connection.ts';
import { ErrorCode, LARGEST_STREAM, goaway, ping } from '../http2/index.ts';

/** What our PING carries; any eight bytes that nobody else would choose. */
const MARK = Buffer.from('farewell');

/**
 * A shutdown in the two steps of RFC 9113 section 6.8. A client is first told to go, without a last stream: calls that it has begun
 * before it heard of that are served. Once it has heard, which its answer to a PING shows, it is told the last one.
 */
export class Farewell {
  #state: 'none' | 'wished' | 'said' | 'over' = 'none';
  #timer: NodeJS.Timeout | undefined;
  readonly #switch: Switch;

  constructor(core: Switch) {
    this.#switch = core;
  }

  /** Whether the client is to go, because we do. */
  get isWished(): boolean {
    return this.#state !== 'none';
  }

  /** Begins, or is to begin once the connection is open: before the backend's SETTINGS the client may not be told anything. */
  say(): void {
    if (this.#state !== 'none' && this.#state !== 'wished') return;
    this.#state = 'wished';
    const core = this.#switch;
    // It goes anyway: the backend has told it to, or nobody answers it.
    if (core.state.kind === 'draining') this.#last();
    if (core.state.kind !== 'open') return;
    this.#state = 'said';
    core.toClient.push(goaway(LARGEST_STREAM, ErrorCode.NO_ERROR, Buffer.from(SHUTTING_DOWN)));
    core.toClient.push(ping(MARK));
    this.#timer = setTimeout(() => core.run('client', () => this.#last()), core.options.farewellTimeout);
  }

  /** The client has answered a PING with these bytes. */
  heard(opaque: Uint8Array): void {
    if (this.#state === 'said' && MARK.equals(opaque)) this.#last();
  }

  /** The connection has ended. */
  end(): void {
    clearTimeout(this.#timer);
    this.#state = 'over';
  }

  #last(): void {
    clearTimeout(this.#timer);
    this.#state = 'over';
    this.#switch.goAway(SHUTTING_DOWN);
  }
}

const SHUTTING_DOWN = 'shutting down';
