import { ConnectionError, DEFAULT_WINDOW, ErrorCode, LARGEST_WINDOW } from '../../http2/index.ts';
import type { FlowControl } from './flow-control.ts';
import type { Lane, LaneSource } from './lane.ts';

/**
 * The connection window that the backend may use, as opposed to the client's. The two differ:
 * - The local server's data and bytes added to a response use the client's window without the backend knowing.
 * - The proxy queues bytes that the backend has sent.
 * - The backend may send ahead. With the client's small first windows, each window of a long response would otherwise
 *   cost a round trip to the client through the proxy; with read-ahead the client waits for the proxy alone.
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

  /** @param flowControl towards the client */
  constructor(flowControl: FlowControl, finished: (lane: Lane) => void) {
    this.#flowControl = flowControl;
    this.#finished = finished;
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

  /** Received bytes wait here. */
  queued(bytes: number): void {
    this.#queued += bytes;
  }

  /** Queued bytes no longer count against the backend: it gets their window back at once. */
  credited(bytes: number): void {
    this.#queued -= bytes;
    this.#allowance += bytes;
  }

  released(_lane: Lane, bytes: number): void {
    this.#queued -= bytes;
  }

  finished(lane: Lane): void {
    this.#finished(lane);
  }

  /** Returns the bytes to grant the backend now, 0 for none: the client's window plus read-ahead, less what waits. */
  grant(): number {
    const increment = Math.min(this.#flowControl.window + this.#ahead, LARGEST_WINDOW) - this.#queued - this.#allowance;
    if (increment <= 0) return 0;
    this.#allowance += increment;
    return increment;
  }
}
