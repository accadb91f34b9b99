import { messageOf } from '../../core/index.ts';
import { ConnectionError, ErrorCode, goaway, PREFACE, settingsFrame } from '../../http2/index.ts';
import { Amender } from './amender.ts';
import { BackendLoss } from './backend-loss.ts';
import { BackendSide } from './backend-side.ts';
import { ClientControl } from './client-control.ts';
import { ClientSide } from './client-side.ts';
import type { ConnectionParts, ReadingSide } from './connection-parts.ts';
import { Delayer } from './delayer.ts';
import { FlowControl } from './flow-control.ts';
import { GracefulShutdown } from './graceful-shutdown.ts';
import { Handling } from './handling.ts';
import type { Side } from './interception.ts';
import { Lifecycle, type State } from './lifecycle.ts';
import { LocalConnections, LocalSide } from './local-side.ts';
import { MessageAmender } from './message-amender.ts';
import type { ProxyConnectionOptions } from './options.ts';
import { Outbox } from './outbox.ts';
import { Results } from './results.ts';
import { type ClosedConnection, HeldBytes } from './shared-budget.ts';
import { Streams } from './streams.ts';
import { balance, type Transport, type TransportEvents } from './transport.ts';

/**
 * One client connection and its backend connection. Makes the parts, each of which gets all of them. Every event from
 * outside goes through {@link run} or {@link receive}, which write what has gathered when the event has been handled.
 */
export class ProxyConnection implements ConnectionParts, ClosedConnection {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle = new Lifecycle();
  readonly toClient: Outbox;
  readonly toBackend: Outbox;
  /** Towards the client. */
  readonly flowControl: FlowControl;
  readonly streams: Streams;
  /** The requests and responses that are held for amendments. */
  readonly held: HeldBytes;
  readonly results = new Results((action) => this.run('backend', action));
  readonly amender: Amender;
  readonly messageAmender: MessageAmender;
  readonly delayer: Delayer;
  readonly control: ClientControl;
  readonly client: ClientSide;
  readonly backend: BackendSide;
  readonly locals: LocalConnections;
  readonly handling: Handling;
  readonly gracefulShutdown: GracefulShutdown;
  readonly #backendLoss: BackendLoss;
  readonly #clientTransport: Transport;
  readonly #backendTransport: Transport;
  #deferredWrites: NodeJS.Timeout | undefined;
  readonly #handshake: NodeJS.Timeout;
  /** The transport has reported `closed`. */
  #clientClosed = false;
  #backendClosed = false;

  /** @param connect opens a side's transport, which reports to `events`, but not before `connect` returns */
  constructor(
    options: ProxyConnectionOptions,
    connect: (side: 'client' | 'backend', events: TransportEvents) => Transport,
  ) {
    this.options = options;
    const defersWrites = options.deferredWriteDelay > 0;
    this.toClient = new Outbox(defersWrites);
    this.toBackend = new Outbox(defersWrites);
    this.flowControl = new FlowControl(this.toClient);
    this.streams = new Streams(this);
    this.held = new HeldBytes(options.shared.held);
    this.amender = new Amender(this);
    this.messageAmender = new MessageAmender(this);
    this.delayer = new Delayer(this);
    this.control = new ClientControl(this);
    this.client = new ClientSide(this);
    this.backend = new BackendSide(this);
    this.locals = new LocalConnections(this);
    this.handling = new Handling(this);
    this.gracefulShutdown = new GracefulShutdown(this);
    this.#backendLoss = new BackendLoss(this);
    this.#clientTransport = connect('client', {
      data: (chunk) => this.receive('client', this.client, chunk),
      drained: () => this.balance(),
      closed: () => {
        this.#clientClosed = true;
        this.close();
        this.#clientTransport.destroy();
        this.#destroyIfBothClosed();
      },
    });
    this.#backendTransport = connect('backend', {
      data: (chunk) => this.backend.gone || this.receive('backend', this.backend, chunk),
      drained: () => this.balance(),
      closed: (error) => {
        this.#backendClosed = true;
        this.run('backend', () => this.#lostBackend(error));
        this.#destroyIfBothClosed();
      },
    });
    this.toClient.open(this.#clientTransport);
    this.toBackend.open(this.#backendTransport);
    this.toBackend.push(PREFACE);
    this.#handshake = setTimeout(() => this.#refuseSilent(), options.handshakeTimeout);
  }

  get state(): State {
    return this.lifecycle.state;
  }

  /** Bytes for the client that the kernel has not taken. */
  get unsent(): number {
    return this.#clientClosed ? 0 : this.#clientTransport.backlog;
  }

  /** Starts a graceful shutdown: the connection closes when the running streams have ended. */
  shutdown(): void {
    this.run('client', () => this.gracefulShutdown.request());
  }

  /** Sends GOAWAY and closes. Call it while no call runs. The client makes later calls on a new connection. */
  end(message: string): void {
    this.run('client', () => {
      if (this.lifecycle.state.kind === 'opening') this.toClient.push(settingsFrame([]));
      this.toClient.push(goaway(this.#lastStream, ErrorCode.NO_ERROR, Buffer.from(message)));
      this.close();
    });
  }

  /** Closes both connections at once. */
  readonly destroy = (): void => {
    if (this.lifecycle.state.kind === 'closed') return;
    this.options.shared.lingering.delete(this);
    this.#end({ kind: 'closed' });
    this.held.setWaiting(0);
    this.#clientTransport.destroy();
    this.#backendTransport.destroy();
  };

  /** Handles an event of a side, then writes what has gathered. An error in it ends this connection and no other. */
  run(side: Side, action: () => void): void {
    if (this.lifecycle.isOver) return;
    try {
      action();
    } catch (error) {
      this.#failed(side, error);
    }
    this.#finishTurn(side);
  }

  /** Runs an action during work for another side. An error in it is the client's. */
  asClient(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#failed('client', error);
    }
  }

  /**
   * Handles a chunk from a side, then writes what has gathered.
   * @returns whether nothing refers to the chunk's bytes any more, so that its memory can be reused
   */
  receive(name: Side, side: ReadingSide, chunk: Buffer): boolean {
    if (this.lifecycle.isOver) return true;
    try {
      side.push(chunk);
    } catch (error) {
      if (side instanceof LocalSide && error instanceof ConnectionError) this.locals.fail(side, error);
      else this.#failed(name, error);
    }
    this.#finishTurn(name);
    const isReusable = this.#backlog() === 0;
    if (isReusable) {
      side.reader.recycle();
      this.flowControl.recycle();
      this.locals.recycle();
    }
    return isReusable;
  }

  /** The client has sent its first SETTINGS. */
  begun(): void {
    clearTimeout(this.#handshake);
  }

  /** The backend's SETTINGS have come: forwarding starts. */
  opened(): void {
    if (!this.lifecycle.open()) return;
    this.options.observer.connected();
    this.gracefulShutdown.proceed();
    this.asClient(() => this.client.reader.resume());
  }

  /** Sends GOAWAY with the last stream that is served. */
  goAway(message: string): void {
    const { kind } = this.lifecycle.state;
    if (kind !== 'open' && kind !== 'draining') return;
    const last = this.#lastStream;
    this.toClient.push(goaway(last, ErrorCode.NO_ERROR, Buffer.from(message)));
    this.lifecycle.drain(last, 'streams');
  }

  /** Ends the connection to the backend. */
  endBackend(): void {
    this.toBackend.close();
    this.#backendTransport.end();
  }

  /** Pauses and resumes reading, so that no side is read faster than the others take the data. */
  balance(): void {
    if (this.lifecycle.isOver) return;
    this.held.setWaiting(this.backend.flow.excess(this.#clientTransport.backlog));
    const backend = this.backend.gone ? undefined : this.#backendTransport;
    if (this.client.waits && (backend?.backlog ?? 0) + this.locals.backlog === 0) {
      this.run('client', () => this.client.continue());
      return;
    }
    const reads = { client: !this.client.reader.stopped, backend: !this.backend.reader.stopped };
    balance(this.#clientTransport, backend, this.locals.transports(), reads, this.options.shared.held.isFull);
  }

  /** The backend has closed. What it has sent before counts, also if that was put off. */
  #lostBackend(error: Error | undefined): void {
    while (this.backend.reader.paused) this.backend.reader.resume();
    this.#backendLoss.closedBy(error);
  }

  /** The client's last stream that is served: the last one opened, or an earlier one that a GOAWAY named. */
  get #lastStream(): number {
    return this.lifecycle.announceable(this.client.lastStreamId);
  }

  /** Bytes that were written and have not left the process. */
  #backlog(): number {
    return this.#clientTransport.backlog + this.#backendTransport.backlog + this.locals.backlog;
  }

  /** The client has connected and not begun to use HTTP/2. */
  #refuseSilent(): void {
    if (this.lifecycle.isOver) return;
    this.options.observer.refused('handshake');
    this.destroy();
  }

  /** Handles an error, including one thrown by the handling itself: other connections are not affected. */
  #failed(side: Side, error: unknown): void {
    try {
      this.#fail(side, error);
    } catch (again) {
      this.options.observer.protocolError(side, ErrorCode.INTERNAL_ERROR, messageOf(again));
      this.destroy();
    }
  }

  #fail(side: Side, error: unknown): void {
    if (this.lifecycle.isOver) return;
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    const message = messageOf(error);
    this.options.observer.protocolError(side, code, message);
    if (side === 'backend' && error instanceof ConnectionError) {
      this.toBackend.push(goaway(0, code, Buffer.from(message)));
      this.#backendLoss.lost(`backend unavailable: it broke the protocol: ${message}`);
      return;
    }
    // RFC 9113 3.4 allows to close without GOAWAY if the peer does not use HTTP/2.
    if (this.control.settingsReceived) this.toClient.push(goaway(this.#lastStream, code, Buffer.from(message)));
    this.close();
  }

  #finishTurn(side: Side): void {
    try {
      this.#endTurn();
    } catch (error) {
      this.#failed(side, error);
    }
    if (!this.lifecycle.isOver && (this.client.reader.paused || this.backend.reader.paused))
      this.options.shared.turns.add(this.#readOn);
  }

  /** Reads what was put off to a later turn of the event loop. */
  readonly #readOn = (): void => {
    if (this.client.reader.paused) this.run('client', () => this.client.reader.resume());
    if (this.backend.reader.paused && !this.backend.gone) this.run('backend', () => this.backend.reader.resume());
  };

  /** Ends the handling of an event: returns windows, closes the connection if it is complete, otherwise writes. */
  #endTurn(): void {
    this.handling.startReady();
    if (this.lifecycle.isOver) return;
    this.amender.keep();
    this.flowControl.pumpIfDue();
    this.client.returnWindow();
    this.messageAmender.resume();
    this.backend.grantConnection();
    this.locals.flush();
    const { state } = this.lifecycle;
    const isEnding = state.kind === 'draining' && state.until === 'streams';
    if (isEnding && this.gracefulShutdown.isRequested && this.streams.ending === 0)
      this.streams.endWatches('cri-resize-shim is being restarted: call again');
    if (state.kind === 'refusing' && state.answers.length > 0) {
      // GOAWAY makes the client reconnect, and find the backend if it is back. It goes before the answers, so that the
      // client's next call does not use this connection.
      this.toClient.push(goaway(this.#lastStream, ErrorCode.NO_ERROR, Buffer.from(state.message)));
      for (const answer of state.answers) this.toClient.push(answer);
      this.close();
    } else if (isEnding && this.streams.running === 0) {
      this.close();
    } else {
      this.#write();
    }
  }

  #write(): void {
    if (this.results.due) this.toClient.coalesce();
    else this.toClient.flush();
    this.toBackend.flush();
    this.amender.prepare();
    this.balance();
    if (this.toClient.hasDeferred || this.toBackend.hasDeferred) this.#flushDeferredLater();
  }

  #flushDeferredLater(): void {
    this.#deferredWrites ??= setTimeout(() => {
      this.#deferredWrites = undefined;
      this.toClient.flushDeferred();
      this.toBackend.flushDeferred();
    }, this.options.deferredWriteDelay);
  }

  /** Sends what is left and closes, without waiting for streams. */
  close(): void {
    if (this.lifecycle.isOver) return;
    const { lingerTimeout, deliveryTimeout, observer, shared } = this.options;
    let left = deliveryTimeout;
    const timer = setTimeout(() => {
      left -= lingerTimeout;
      // A client that reads slowly, or that the kernel has not let run, still gets its answers.
      if (this.unsent > 0 && left > 0) timer.refresh();
      else this.destroy();
    }, lingerTimeout);
    this.#end({ kind: 'closing', timer });
    // Keep reading and dropping what the client sends: closing a socket with unread bytes would discard the last
    // answers.
    this.#clientTransport.resume();
    this.#clientTransport.end();
    this.#backendTransport.end();
    if (shared.lingering.add(this)) observer.refused('lingering');
  }

  #destroyIfBothClosed(): void {
    if (this.#clientClosed && this.#backendClosed) this.destroy();
  }

  /** Enters one of the last two states. */
  #end(next: Extract<State, { kind: 'closing' | 'closed' }>): void {
    this.lifecycle.end(next);
    clearTimeout(this.#deferredWrites);
    clearTimeout(this.#handshake);
    this.options.shared.turns.delete(this.#readOn);
    this.gracefulShutdown.end();
    this.streams.cancelAll();
    // Callers further up the stack may still push bytes: a closed outbox drops them.
    this.toClient.close();
    this.toBackend.close();
    this.locals.end();
  }
}
