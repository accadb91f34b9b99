import { Code } from '../../core/index.ts';
import { headersFrames } from '../../http2/index.ts';
import { statusBlock } from './grpc.ts';

/** The event that closes a draining connection: the backend, which sent GOAWAY, or the end of the last stream. */
export type Until = 'backend' | 'streams';

/**
 * The life of a connection:
 * - `opening`: the backend has not sent its SETTINGS, and the client waits for them.
 * - `open`: streams are forwarded.
 * - `refusing`: the backend cannot be reached; calls are answered UNAVAILABLE.
 * - `draining`: the client has received GOAWAY; streams up to the last announced one run to their end.
 * - `closing`: everything has been sent; what still arrives is dropped.
 * - `closed`: both sockets are closed.
 */
export type State =
  | { readonly kind: 'opening' }
  | { readonly kind: 'open' }
  | { readonly kind: 'refusing'; readonly message: string; readonly answers: Buffer[]; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'draining'; readonly lastStreamId: number; readonly until: Until }
  | { readonly kind: 'closing'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'closed' };

/** Where a connection is in its life, and the transitions between its states. */
export class Lifecycle {
  #state: State = { kind: 'opening' };

  get state(): State {
    return this.#state;
  }

  get isOver(): boolean {
    return this.#state.kind === 'closing' || this.#state.kind === 'closed';
  }

  /** Returns false if the connection was not opening. */
  open(): boolean {
    if (this.#state.kind !== 'opening') return false;
    this.#state = { kind: 'open' };
    return true;
  }

  /** @param timer closes the connection if no call comes */
  refuse(message: string, timer: NodeJS.Timeout): void {
    this.#state = { kind: 'refusing', message, answers: [], timer };
  }

  /** Returns the last stream that a GOAWAY may name: never later than in the one before (RFC 9113 6.8). */
  announceable(lastStreamId: number): number {
    const state = this.#state;
    return state.kind === 'draining' ? Math.min(state.lastStreamId, lastStreamId) : lastStreamId;
  }

  /** The client has received GOAWAY: streams up to this one are served. */
  drain(lastStreamId: number, until: Until): void {
    const before = this.#state;
    if (before.kind === 'open') this.#state = { kind: 'draining', lastStreamId, until };
    if (before.kind !== 'draining') return;
    const last = this.announceable(lastStreamId);
    this.#state = { kind: 'draining', lastStreamId: last, until: before.until === 'streams' ? 'streams' : until };
  }

  /** Enters one of the last two states. */
  end(next: Extract<State, { kind: 'closing' | 'closed' }>): void {
    const state = this.#state;
    if (state.kind === 'refusing' || state.kind === 'closing') clearTimeout(state.timer);
    this.#state = next;
  }

  /**
   * Returns whether a new stream may be opened. Otherwise its answer is queued (`refusing`), or the client knows from
   * GOAWAY that it is not served (`draining`).
   */
  admits(id: number, maxFrameSize: number): boolean {
    const state = this.#state;
    if (state.kind === 'refusing') {
      state.answers.push(headersFrames(id, statusBlock(Code.UNAVAILABLE, state.message, false), true, maxFrameSize));
      return false;
    }
    return state.kind !== 'draining' || id <= state.lastStreamId;
  }
}
