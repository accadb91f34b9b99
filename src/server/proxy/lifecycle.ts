import { type FrameReader, headersFrames, settingsFrame } from '../../http2/index.ts';
import { Code, errnoOf } from '../../core/index.ts';
import { statusBlock } from './grpc.ts';
import type { Side } from './interception.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Streams } from './streams.ts';
import type { Outbox } from './outbox.ts';

/** What closes a draining connection: the backend, which sent GOAWAY, or the end of the last stream. */
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

  /** Returns the last stream that a GOAWAY may name: none names a later stream than the one before it (RFC 9113 6.8). */
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

/** What {@link BackendLoss} uses of the connection. */
export interface BackendLossPorts {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle: Lifecycle;
  readonly toClient: Outbox;
  readonly streams: Streams;
  /** `gone`: the connection to the backend is closed. */
  readonly backend: { gone: boolean };
  readonly client: { readonly reader: FrameReader };
  readonly control: {
    /** Acknowledges all pending SETTINGS of the client. */
    acknowledgeAll(): void;
  };
  /** Ends the connection to the backend. */
  endBackend(): void;
  /** Sends GOAWAY with the last stream that the client has opened. */
  goAway(message: string): void;
  /** Sends what is left and closes, without waiting for streams. */
  close(): void;
  /** Handles an event of a side, then writes what has gathered. */
  run(side: Side, action: () => void): void;
  /** Runs an action during work for another side. Its errors are the client's. */
  asClient(action: () => void): void;
}

/** What a connection does when its backend is gone: calls at the backend end UNAVAILABLE, and the client is asked to connect again. */
export class BackendLoss {
  readonly #ports: BackendLossPorts;

  constructor(ports: BackendLossPorts) {
    this.#ports = ports;
  }

  /** The connection to the backend has closed. During calls, clients get the words of grpc-go's client, which some programs match. */
  closedBy(error: Error | undefined): void {
    const { lifecycle, options } = this.#ports;
    const errno = errnoOf(error);
    if (errno === 'EMFILE' || errno === 'ENFILE') {
      const message = `cri-resize-shim has no free file descriptor (${errno}): raise its limit (LimitNOFILE=), or end connections`;
      this.lost(message, () => options.observer.noDescriptor(message));
    } else if (lifecycle.state.kind === 'opening')
      this.lost(`backend unavailable: ${error?.message ?? 'it closed the connection'}`);
    else this.lost(`error reading from server: ${error?.message ?? 'EOF'}`);
  }

  /** The backend cannot be used any more. */
  lost(message: string, report = (): void => this.#ports.options.observer.backendLost(message)): void {
    const ports = this.#ports;
    if (ports.lifecycle.isOver || ports.backend.gone) return;
    ports.backend.gone = true;
    ports.endBackend();
    report();
    if (ports.lifecycle.state.kind === 'opening') {
      this.#refuse(message);
      return;
    }
    ports.streams.backendLost(message);
    ports.asClient(() => ports.control.acknowledgeAll());
    ports.goAway(message);
  }

  /** Acts as the server without a backend, so that the client's first calls are answered UNAVAILABLE. */
  #refuse(message: string): void {
    const ports = this.#ports;
    const timer = setTimeout(() => ports.run('client', () => ports.close()), ports.options.refuseTimeout);
    ports.lifecycle.refuse(message, timer);
    ports.toClient.push(settingsFrame([]));
    ports.asClient(() => {
      ports.control.acknowledgeAll();
      ports.client.reader.resume();
    });
  }
}
