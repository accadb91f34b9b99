import { ConnectionError, DEFAULT_WINDOW, ErrorCode, LARGEST_WINDOW } from '../../http2/index.ts';
import type { FlowControl } from './flow-control.ts';
import type { Lane, LaneSource } from './lane.ts';
import type { QueuedBytes } from '../bounds/index.ts';

/** A grant that the limit cuts to less than this part of it is put off: a WINDOW_UPDATE for a few bytes is a write of its own. */
const SMALLEST_GRANT = 1 / 4;
/** Bytes in the client's socket above which the backend is not read, and those of one more read. */
const SOCKET_LIMIT = 2 * 65_536;
/** Parts of the limit up to which further messages are held. */
export const OVERFULL = 2;
export const OVERFULL_IF_ALL_FULL = 1 / 4;

/**
 * The connection window that the backend may use, as opposed to the client's. The two differ:
 * - The local server's data and bytes added to a response use the client's window without the backend knowing.
 * - The proxy queues bytes that the backend has sent.
 * - The backend may send ahead. With the client's small first windows, each window of a long response would otherwise
 *   cost a round trip to the client through the proxy; with read-ahead the client waits for the proxy alone.
 * - What may wait here is limited, for this connection and for all: a client may open a large window for its connection and none
 *   for its streams.
 */
export class BackendFlow implements LaneSource {
  /** Bytes that the backend may still send: what it was granted less what it has sent. */
  #allowance = DEFAULT_WINDOW;
  /** Bytes from the backend that wait here for the client's windows. */
  #queued = 0;
  /** Bytes that the backend may send beyond the client's window. */
  #ahead = 0;
  readonly #flowControl: FlowControl;
  readonly #finished: (lane: Lane) => void;
  readonly #limit: number;
  readonly #all: QueuedBytes;

  /**
   * @param flowControl towards the client
   * @param limit bytes that the backend may send and that may wait here, together
   * @param all what waits here of all connections
   */
  constructor(flowControl: FlowControl, finished: (lane: Lane) => void, limit: number, all: QueuedBytes) {
    this.#flowControl = flowControl;
    this.#finished = finished;
    this.#limit = limit;
    this.#all = all;
  }

  /** Lets the backend send this much ahead. To be called once the backend has been sent SETTINGS. */
  readAhead(bytes: number): void {
    this.#ahead = bytes;
  }

  /** @throws ConnectionError when the backend exceeds its connection window (RFC 9113 6.9.1) */
  received(bytes: number): void {
    this.#allowance -= bytes;
    if (this.#allowance < 0)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'more DATA than the connection window allows');
  }

  /**
   * Whether so much waits here that no further message may: while a message is held, the backend gets window beyond the limit to
   * complete it.
   */
  get isOverfull(): boolean {
    return this.#queued > this.#limit * (this.#all.isFull ? OVERFULL_IF_ALL_FULL : OVERFULL);
  }

  /**
   * Returns how many bytes wait for the client beyond what may: responses that were held, which the backend got window for.
   * @param backlog bytes that wait in the client's socket
   */
  excess(backlog: number): number {
    const limit = this.#all.isFull ? DEFAULT_WINDOW : this.#limit;
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
   * Returns the bytes to grant the backend now, 0 for none: the client's window plus read-ahead, less what waits, within the limits.
   */
  grant(): number {
    const used = this.#queued + this.#allowance;
    const wanted = Math.min(this.#flowControl.window + this.#ahead, LARGEST_WINDOW) - used;
    if (wanted <= 0) return 0;
    const limit = this.#all.isFull ? DEFAULT_WINDOW : this.#limit;
    const increment = Math.min(wanted, limit - used);
    if (increment < wanted && increment < limit * SMALLEST_GRANT) return 0;
    this.#allowance += increment;
    return increment;
  }

  /** Of all connections, what is beyond the limit of this one counts as held ({@link excess}): one client does not use up all. */
  #add(bytes: number): void {
    const before = Math.min(this.#queued, this.#limit);
    this.#queued += bytes;
    this.#all.add(Math.min(this.#queued, this.#limit) - before);
  }
}
