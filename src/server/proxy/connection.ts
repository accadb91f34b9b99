import { messageOf } from '../../core/errors/index.ts';
import { Amender } from './amender.ts';
import { BackendSide } from './backend-side.ts';
import { ClientSide } from './client-side.ts';
import { Farewell } from './graceful-shutdown.ts';
import { Gate } from './flow-control.ts';
import { unavailableBlock } from './grpc.ts';
import { LocalSide } from './local-side.ts';
import type { Side } from './observer.ts';
import type { SwitchCoreOptions } from './options.ts';
import type { State, Until } from './state.ts';
import { Streams } from './streams.ts';
import { Outbox, type Transport, type TransportEvents, balance } from './transport/index.ts';
import {
  ConnectionError,
  ErrorCode,
  type Frame,
  PREFACE,
  goaway,
  headersFrames,
  pingAck,
  settingsFrame,
} from '../http2/index.ts';

/**
 * One client connection, its backend connection, and what is between. Driven by transports; everything that comes from
 * outside runs in {@link run}, at the end of which all that has gathered is written.
 */
export class Switch {
  readonly toClient = new Outbox();
  readonly toBackend = new Outbox();
  readonly gate = new Gate(this.toClient);
  readonly options: SwitchCoreOptions;
  readonly streams: Streams;
  readonly client: ClientSide;
  readonly backend: BackendSide;
  readonly amender: Amender;
  readonly farewell = new Farewell(this);
  readonly #clientTransport: Transport;
  readonly #backendTransport: Transport;
  readonly #locals = new Map<LocalSide, Transport>();
  /** Where new streams go, of {@link #locals}. */
  #local: LocalSide | undefined;
  #state: State = { kind: 'opening' };
  #hurry: NodeJS.Timeout | undefined;
  /** The transports have said that nothing more comes. */
  #clientOver = false;
  #backendOver = false;

  /** @param connect wires a side up: its transport tells the given events from now on, though not before it returns */
  constructor(options: SwitchCoreOptions, connect: (side: 'client' | 'backend', events: TransportEvents) => Transport) {
    this.options = options;
    this.streams = new Streams(this);
    this.amender = new Amender(this);
    this.client = new ClientSide(this);
    this.backend = new BackendSide(this);
    this.#clientTransport = connect('client', {
      data: (chunk) => this.#receive('client', this.client, chunk),
      drained: () => this.#balance(),
      closed: () => {
        this.#clientOver = true;
        this.#close();
        this.#clientTransport.destroy();
        this.#closed();
      },
    });
    this.#backendTransport = connect('backend', {
      data: (chunk) => this.backend.gone || this.#receive('backend', this.backend, chunk),
      drained: () => this.#balance(),
      closed: (error) => {
        this.#backendOver = true;
        this.run('backend', () => this.#backendLost(error?.message ?? 'it closed the connection'));
        this.#closed();
      },
    });
    this.toClient.open(this.#clientTransport);
    this.toBackend.open(this.#backendTransport);
    this.toBackend.push(PREFACE);
  }

  get state(): State {
    return this.#state;
  }

  /** The client is to go; the connection closes when what runs has ended. */
  shutdown(): void {
    this.run('client', () => this.farewell.say());
  }

  destroy(): void {
    if (this.#state.kind === 'closed') return;
    this.#end({ kind: 'closed' });
    this.#clientTransport.destroy();
    this.#backendTransport.destroy();
  }

  /** Runs what came from a side. What is wrong with it ends this connection, and nothing else. */
  run(side: Side, action: () => void): void {
    if (this.#isOver()) return;
    try {
      action();
    } catch (error) {
      this.#failed(side, error);
    }
    this.#settled(side);
  }

  /** Runs, while something else is in work, what is the client's fault if it is wrong. */
  asClient(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#failed('client', error);
    }
  }

  /** The backend's SETTINGS have come: the client may go on. */
  opened(): void {
    if (this.#state.kind !== 'opening') return;
    this.#state = { kind: 'open' };
    this.options.observer.connected();
    if (this.farewell.isWished) this.farewell.say();
    this.asClient(() => this.client.reader.resume());
  }

  /**
   * Answers a PING, in one write with what goes there next: Go's peers ping on every burst of data, so that each call
   * would cost two writes more, and a write costs more than all else that we do for a call.
   */
  acknowledgePing(outbox: Outbox, frame: Frame): void {
    this.sendUnhurried(outbox, pingAck(frame.buffer.subarray(frame.payload, frame.end)));
  }

  /** Sends what nobody waits for, with whatever goes there next. */
  sendUnhurried(outbox: Outbox, bytes: Buffer): void {
    if (this.options.unhurriedDelay === 0) outbox.push(bytes);
    else outbox.pushUnhurried(bytes);
  }

  /** Whether a new stream is to be opened; if not, the client has its answer, or knows that there will be none. */
  admits(id: number): boolean {
    const state = this.#state;
    if (state.kind === 'refusing') {
      state.answers.push(headersFrames(id, unavailableBlock(state.message, false), true, this.gate.maxFrameSize));
      return false;
    }
    return state.kind !== 'draining' || id <= state.lastStreamId;
  }

  /** The client was told to go, and that streams up to this one are served. */
  drain(lastStreamId: number, until: Until): void {
    const before = this.#state;
    if (before.kind === 'open') this.#state = { kind: 'draining', lastStreamId, until };
    if (before.kind !== 'draining') return;
    const last = Math.min(before.lastStreamId, lastStreamId);
    this.#state = { kind: 'draining', lastStreamId: last, until: before.until === 'streams' ? 'streams' : until };
  }

  /** The connection to the local server, made when the first stream needs it. */
  local(): LocalSide {
    if (this.#local !== undefined) return this.#local;
    const side = new LocalSide(this);
    const transport = this.options.connectLocal({
      data: (chunk) => !this.#locals.has(side) || this.#receive('local', side, chunk),
      drained: () => this.#balance(),
      closed: () => this.run('local', () => this.#localLost(side)),
    });
    side.outbox.open(transport);
    this.#local = side;
    this.#locals.set(side, transport);
    return side;
  }

  /** A local server takes no new streams: the next one gets a new connection. */
  retire(side: LocalSide): void {
    if (this.#local === side) this.#local = undefined;
  }

  /** Returns whether the chunk's bytes, or slices of them, are nowhere any more: whoever keeps some copies them. */
  #receive(name: Side, side: ClientSide | BackendSide | LocalSide, chunk: Buffer): boolean {
    if (this.#isOver()) return true;
    try {
      side.push(chunk);
    } catch (error) {
      if (side instanceof LocalSide && error instanceof ConnectionError) this.#localFailed(side, error);
      else this.#failed(name, error);
    }
    this.#settled(name);
    const reusable = this.#backlog() === 0;
    if (reusable) {
      side.reader.recycle();
      this.gate.recycle();
      for (const local of this.#locals.keys()) local.gate.recycle();
    }
    return reusable;
  }

  /** Bytes that were written and are still in this process. */
  #backlog(): number {
    let bytes = this.#clientTransport.backlog + this.#backendTransport.backlog;
    for (const transport of this.#locals.values()) bytes += transport.backlog;
    return bytes;
  }

  #settled(side: Side): void {
    try {
      this.#settle();
    } catch (error) {
      this.#failed(side, error);
    }
  }

  #localFailed(side: LocalSide, error: ConnectionError): void {
    this.options.observer.protocolError('local', error.code, error.message);
    const transport = this.#locals.get(side);
    this.#localLost(side);
    transport?.destroy();
  }

  #localLost(side: LocalSide): void {
    this.retire(side);
    this.#locals.delete(side);
    side.outbox.close();
    this.streams.localLost(side, 'cri-resize-shim ended the call');
  }

  #backendLost(reason: string): void {
    if (this.#isOver() || this.backend.gone) return;
    const message = `backend unavailable: ${reason}`;
    this.backend.gone = true;
    this.toBackend.close();
    this.#backendTransport.end();
    this.options.observer.backendLost(message);
    if (this.#state.kind === 'opening') {
      this.#refuse(message);
      return;
    }
    this.streams.backendLost(message);
    this.asClient(() => this.client.acknowledgeAll());
    this.goAway(message);
  }

  /** Without a backend we are the server, as far as it takes to say so. */
  #refuse(message: string): void {
    const timer = setTimeout(() => this.run('client', () => this.#close()), this.options.refuseTimeout);
    this.#state = { kind: 'refusing', message, answers: [], timer };
    this.toClient.push(settingsFrame([]));
    this.asClient(() => {
      this.client.acknowledgeAll();
      this.client.reader.resume();
    });
  }

  /** Tells the client to go: it is served up to the last stream that it has opened. */
  goAway(message: string): void {
    if (this.#state.kind !== 'open' && this.#state.kind !== 'draining') return;
    const last = this.client.lastStreamId;
    this.toClient.push(goaway(last, ErrorCode.NO_ERROR, Buffer.from(message)));
    this.drain(last, 'streams');
  }

  /** Whatever was thrown, and whatever its handling throws in turn, stops here: other connections go on. */
  #failed(side: Side, error: unknown): void {
    try {
      this.#fail(side, error);
    } catch (again) {
      this.options.observer.protocolError(side, ErrorCode.INTERNAL_ERROR, messageOf(again));
      this.destroy();
    }
  }

  #fail(side: Side, error: unknown): void {
    if (this.#isOver()) return;
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    const message = messageOf(error);
    this.options.observer.protocolError(side, code, message);
    if (side === 'backend' && error instanceof ConnectionError) {
      this.toBackend.push(goaway(0, code, Buffer.from(message)));
      this.#backendLost(`it broke the protocol: ${message}`);
      return;
    }
    // RFC 9113 section 3.4 lets us close without a word to someone who does not speak HTTP/2 at all.
    if (this.client.greeted) this.toClient.push(goaway(this.client.lastStreamId, code, Buffer.from(message)));
    this.#close();
  }

  /** At the end of everything that happens: gives windows back, writes, and looks whether this was all. */
  #settle(): void {
    if (this.#isOver()) return;
    this.client.settle();
    this.backend.settle();
    for (const side of this.#locals.keys()) side.settle();
    const state = this.#state;
    const isEnding = state.kind === 'draining' && state.until === 'streams';
    if (isEnding && this.farewell.isWished && this.streams.ending === 0)
      this.streams.endWatches('cri-resize-shim is being restarted: call again');
    if (state.kind === 'refusing' && state.answers.length > 0) {
      // So that the client comes again, and finds the backend if it is back. Before the answers: its next call must not
      // come this way any more.
      this.toClient.push(goaway(this.client.lastStreamId, ErrorCode.NO_ERROR, Buffer.from(state.message)));
      for (const answer of state.answers) this.toClient.push(answer);
      this.#close();
    } else if (isEnding && this.streams.running === 0) {
      this.#close();
    } else {
      if (this.amender.turnIsNear) this.toClient.keep();
      else this.toClient.flush();
      this.toBackend.flush();
      this.#balance();
      if (this.toClient.unhurried || this.toBackend.unhurried) this.#hurryLater();
    }
  }

  #hurryLater(): void {
    this.#hurry ??= setTimeout(() => {
      this.#hurry = undefined;
      for (const outbox of [this.toClient, this.toBackend]) outbox.hurry();
    }, this.options.unhurriedDelay);
  }

  #balance(): void {
    if (this.#isOver()) return;
    const backend = this.backend.gone ? undefined : this.#backendTransport;
    balance(this.#clientTransport, backend, this.#locals.values(), !this.client.reader.stopped);
  }

  /** Sends what is left to say and closes, without waiting for streams. */
  #close(): void {
    if (this.#isOver()) return;
    const timer = setTimeout(() => {
      this.#clientTransport.destroy();
      this.#backendTransport.destroy();
    }, this.options.lingerTimeout);
    this.#end({ kind: 'closing', timer });
    // What the client still sends is read and dropped: closing on unread bytes would take the last answers from it.
    this.#clientTransport.resume();
    this.#clientTransport.end();
    this.#backendTransport.end();
  }

  /** Nobody is left to wait for. */
  #closed(): void {
    if (this.#clientOver && this.#backendOver) this.destroy();
  }

  /** Leaves the present state for one of the last two. */
  #end(next: State): void {
    const state = this.#state;
    if (state.kind === 'refusing' || state.kind === 'closing') clearTimeout(state.timer);
    this.#state = next;
    clearTimeout(this.#hurry);
    this.farewell.end();
    this.streams.cancelAll();
    // What is still in work, further up the stack, may go on for a while: it reaches nobody.
    for (const outbox of [this.toClient, this.toBackend]) outbox.close();
    for (const [side, transport] of this.#locals) {
      side.outbox.close();
      transport.end();
    }
    this.#locals.clear();
    this.#local = undefined;
  }

  #isOver(): boolean {
    return this.#state.kind === 'closing' || this.#state.kind === 'closed';
  }
}
