import type { Gate, Lane, LaneSource } from './flow-control.ts';
import { ConnectionError, DEFAULT_WINDOW, ErrorCode, LARGEST_WINDOW } from '../http2/index.ts';

/**
 * What the backend may send on the connection, as against what the client takes. The two part when someone else uses the
 * client's window (the server in this process, bytes added to a response), when the switch keeps bytes that the backend
 * has sent, and by what the backend may send ahead: with the client's small first windows, a long answer would wait for the
 * client and the switch once for each window, and so finds the client waiting for the switch alone.
 */
export class BackendFlow implements LaneSource {
  /** Bytes that the backend may still send: what it was granted less what came. */
  #allowance = DEFAULT_WINDOW;
  /** Bytes of the backend that are here, waiting for the client's windows. */
  #queued = 0;
  /** Bytes that it may send beyond what the client takes. */
  #ahead = 0;
  readonly #gate: Gate;
  readonly #finished: (lane: Lane) => void;

  constructor(gate: Gate, finished: (lane: Lane) => void) {
    this.#gate = gate;
    this.#finished = finished;
  }

  /** From now on, that is, since the backend has been greeted, this much may be sent ahead. */
  readAhead(bytes: number): void {
    this.#ahead = bytes;
  }

  /** @throws ConnectionError when the backend sends more than it was allowed (RFC 9113 section 6.9.1) */
  received(bytes: number): void {
    this.#allowance -= bytes;
    if (this.#allowance < 0)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'more DATA than the connection window allows');
  }

  /** Bytes that were received stay here. */
  kept(bytes: number): void {
    this.#queued += bytes;
  }

  /** Bytes that were kept are the switch's own affair from now on: the backend gets their window back at once. */
  forgiven(bytes: number): void {
    this.#queued -= bytes;
    this.#allowance += bytes;
  }

  left(_lane: Lane, bytes: number): void {
    this.#queued -= bytes;
  }

  finished(lane: Lane): void {
    this.#finished(lane);
  }

  /** Bytes to grant the backend now: as much as fits the client's window and ahead of it, beside what waits, 0 for none. */
  grant(): number {
    const increment = Math.min(this.#gate.window + this.#ahead, LARGEST_WINDOW) - this.#queued - this.#allowance;
    if (increment <= 0) return 0;
    this.#allowance += increment;
    return increment;
  }
}
