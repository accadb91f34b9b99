import {
  ConnectionError,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  LARGEST_WINDOW,
} from '../../http2/index.ts';
import type { FlowControl } from './flow-control.ts';
import type { Lane, LaneSource } from './lane.ts';
import type { Shares } from './shared-budget.ts';

/** A grant cut by the limit to less than this part waits: a WINDOW_UPDATE for a few bytes costs a write. */
const SMALLEST_GRANT = 1 / 4;
/** Bytes in the client's socket above which the backend is not read, plus the bytes of one more read. */
const SOCKET_LIMIT = 2 * 65_536;
/** Parts of the limit up to which further messages are held. */
export const OVERFULL = 2;
export const OVERFULL_IF_ALL_FULL = 1 / 4;

/** Returns the backend's largest initial stream window. Read-ahead is added on top (RFC 9113 6.9.1). */
export const largestInitial = ({ readAhead }: { readonly readAhead: number }): number => LARGEST_WINDOW - readAhead;

/** Returns the backend's initial window for streams, by the client's. */
export const backendInitial = (options: { readonly readAhead: number }, window: number): number =>
  Math.min(window, largestInitial(options));

/**
 * The connection window that the backend may use, which differs from the client's:
 * - The local server's data and bytes added to a response use the client's window without the backend knowing.
 * - The proxy queues bytes that the backend has sent.
 * - The backend may send ahead. Otherwise, with the client's small first windows, each window of a long response would
 *   cost a round trip to the client through the proxy; with read-ahead, the client only waits for the proxy.
 * - Bytes that wait for the window of one stream take no window from others (RFC 9113 5.2: streams do not interfere). A
 *   client such as grpc-go returns connection window for all DATA, and stream window for what its caller reads. So the
 *   client's whole connection window stays with the backend, and queued bytes only shorten the read-ahead.
 * - The read-ahead of streams limits the bytes that may wait here, for this connection and for all connections: a
 *   client may open a large window for its connection and none for its streams.
 */
export class BackendFlow implements LaneSource {
  /** Bytes that the backend may still send: what it was granted less what it has sent. */
  #allowance = DEFAULT_WINDOW;
  /** Bytes from the backend that wait here for the client's windows. */
  #queued = 0;
  /** Bytes that the backend may send beyond the client's connection window, and beyond that of a stream. */
  #ahead = 0;
  /** Bytes that the backend may send beyond the windows of streams. All of them may have to be queued. */
  #reserved = 0;
  /** The bytes that count as waiting here among all connections. */
  #counted = 0;
  readonly #finished: (lane: Lane) => void;

  /**
   * @param flowControl towards the client
   * @param limit bytes that may wait here; beyond it, the backend gets one default window at a time
   * @param all what waits here of all connections
   */
  constructor(
    private readonly flowControl: FlowControl,
    finished: (lane: Lane) => void,
    private readonly limit: number,
    private readonly all: Shares,
  ) {
    this.#finished = finished;
  }

  /** Sets the read-ahead. Call it once the backend has been sent SETTINGS. */
  readAhead(bytes: number): void {
    this.#ahead = bytes;
  }

  /**
   * Reserves read-ahead for a stream, half of what is left at most: streams that are not read leave some to others.
   * @param had bytes that the stream has already
   * @param needed bytes that the stream can use in addition
   * @returns the bytes that the backend may send in addition; 0 for none
   */
  reserve(had: number, needed: number): number {
    const wanted = Math.min(this.#ahead - had, needed);
    if (wanted <= 0 || this.all.isFull) return 0;
    const bytes = Math.min(wanted, (this.limit - this.#reserved) >> 1);
    if (bytes < wanted && bytes < DEFAULT_MAX_FRAME_SIZE) return 0;
    this.#reserved += bytes;
    this.#count();
    return bytes;
  }

  /** Returns what was reserved for a stream. */
  unreserve(bytes: number): void {
    this.#reserved -= bytes;
    this.#count();
  }

  /** @throws ConnectionError when the backend exceeds its connection window (RFC 9113 6.9.1) */
  received(bytes: number): void {
    this.#allowance -= bytes;
    if (this.#allowance < 0)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'more DATA than the connection window allows');
  }

  /**
   * Whether too many bytes are queued to hold further messages: for a held message, the backend gets window beyond the
   * limit to complete it.
   */
  get isOverfull(): boolean {
    return this.#queued > this.limit * (this.all.isFull ? OVERFULL_IF_ALL_FULL : OVERFULL);
  }

  /**
   * Returns the bytes that wait for the client beyond the limits: held responses, for which the backend got window.
   * @param backlog bytes that wait in the client's socket
   */
  excess(backlog: number): number {
    const limit = this.all.isFull ? DEFAULT_WINDOW : this.limit;
    return Math.max(0, this.#queued - limit) + Math.max(0, backlog - SOCKET_LIMIT);
  }

  /** Received bytes wait here. */
  queued(bytes: number): void {
    this.#add(bytes);
  }

  /** Queued bytes no longer count against the backend: it gets their window back at once. */
  credited(bytes: number): void {
    this.#add(-bytes);
    this.#allowance += bytes;
  }

  released(_lane: Lane, bytes: number): void {
    this.#add(-bytes);
  }

  finished(lane: Lane): void {
    this.#finished(lane);
  }

  /**
   * Returns the bytes to grant the backend now, 0 for none: the client's window, and read-ahead less what waits, within
   * the limits. All that waits while the client's window is open waits for windows of streams, or for amendments.
   */
  grant(): number {
    const ahead = Math.max(0, this.#ahead + this.#reserved - this.#queued);
    const wanted = Math.min(this.flowControl.window + ahead, LARGEST_WINDOW) - this.#allowance;
    if (wanted <= 0) return 0;
    const limit = Math.max(DEFAULT_WINDOW, this.all.isFull ? 0 : this.limit - this.#queued);
    const increment = Math.min(wanted, limit - this.#allowance);
    if (increment < wanted && increment < limit * SMALLEST_GRANT) return 0;
    this.#allowance += increment;
    return increment;
  }

  #add(bytes: number): void {
    this.#queued += bytes;
    this.#count();
  }

  /** Bytes beyond the limit of this connection count as held ({@link excess}): one client does not use up all. */
  #count(): void {
    const before = this.#counted;
    this.#counted = Math.max(Math.min(this.#queued, this.limit), this.#reserved);
    this.all.changed(this.#counted, before);
  }
}
