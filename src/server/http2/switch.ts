import type { Interception } from '../interception.ts';
import { Amendment } from './amendment.ts';
import { BackendSide } from './backend-side.ts';
import { ClientSide } from './client-side.ts';
import { ConnectionError, ErrorCode } from './errors.ts';
import type { Frame } from './frame.ts';
import { PREFACE, goaway, headersFrames, rstStream, settingsFrame, windowUpdate } from './frame.ts';
import { Gate, Lane } from './gate.ts';
import { unavailableBlock } from './grpc.ts';
import { LocalSide } from './local-side.ts';
import type { Side, SkipReason, SwitchObserver } from './observer.ts';
import { Outbox } from './outbox.ts';
import type { AmendStream, Stream } from './stream.ts';
import type { Transport, TransportEvents } from './transport.ts';

/** What the switch needs to know. Sizes in bytes, times in milliseconds. */
export interface SwitchCoreOptions {
  readonly interception: Interception;
  readonly observer: SwitchObserver;
  /** Opens a connection to the local server, which tells `events`. */
  readonly connectLocal: (events: TransportEvents) => Transport;
  readonly now: () => number;
  readonly amendTimeout: number;
  /** A header list from the client, decoded. */
  readonly headerListLimit: number;
  /** A request that is read on the way; a longer one is not amended. */
  readonly requestLimit: number;
  /** A response that is held; a longer one is not amended. */
  readonly responseLimit: number;
  /** All that is held at one time. */
  readonly heldLimit: number;
  /** How long a connection without a backend waits for a call that it can answer. */
  readonly refuseTimeout: number;
  /** How long the other side may take to close, after it was told to. */
  readonly lingerTimeout: number;
}

/**
 * A connection's life:
 * - `opening`: the backend has not sent its SETTINGS.
 * - `open`
 * - `refusing`: the backend cannot be reached; calls are answered UNAVAILABLE.
 * - `draining`: the client has been told to go (GOAWAY); streams up to the last one run to their end.
 * - `closing`: everything is said; what still comes is dropped.
 * - `closed`
 */
export type State =
  | { readonly kind: 'opening' }
  | { readonly kind: 'open' }
  | { readonly kind: 'refusing'; readonly message: string; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'draining'; readonly lastStreamId: number; readonly until: Until }
  | { readonly kind: 'closing'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'closed' };

/** Who closes a draining connection: the backend, which has told the client to go, or the switch, when the streams have ended. */
type Until = 'backend' | 'streams';

/** Bytes that a side may be behind before nothing more is read for it. */
const BACKLOG = 262_144;
/** Bytes of answers to the client itself (pings, settings) before it is not read any more. */
const OWN_BACKLOG = 4 * BACKLOG;

/**
 * One client connection, its backend connection, and what is between. Driven by transports: every call from outside ends
 * in {@link #settle}, which writes what has gathered.
 */
export class Switch {
  readonly toClient = new Outbox();
  readonly toBackend = new Outbox();
  readonly gate = new Gate(this.toClient);
  readonly streams = new Map<number, Stream>();
  readonly options: SwitchCoreOptions;
  readonly client: ClientSide;
  readonly backend: BackendSide;
  /** Bytes of requests and responses that are kept for amendments. */
  held = 0;
  #state: State = { kind: 'opening' };
  #local: LocalSide | undefined;
  readonly #locals = new Set<LocalSide>();
  #clientTransport: Transport | undefined;
  #backendTransport: Transport | undefined;

  constructor(options: SwitchCoreOptions) {
    this.options = options;
    this.client = new ClientSide(this);
    this.backend = new BackendSide(this);
    this.toBackend.push(PREFACE);
  }

  get state(): State {
    return this.#state;
  }

  /** Streams whose answer is not complete. */
  get running(): number {
    let count = 0;
    for (const stream of this.streams.values()) if (!stream.delivered) count += 1;
    return count;
  }

  start(client: Transport, backend: Transport): void {
    this.#clientTransport = client;
    this.#backendTransport = backend;
    this.toClient.open(client);
    this.toBackend.open(backend);
  }

  readonly clientEvents: TransportEvents = {
    data: (chunk) => {
      if (this.#isOver()) return;
      this.#guard('client', () => this.client.push(chunk));
    },
    drained: () => this.#balance(),
    closed: () => this.#clientClosed(),
  };

  readonly backendEvents: TransportEvents = {
    data: (chunk) => {
      if (this.#isOver() || this.backend.gone) return;
      this.#guard('backend', () => this.backend.push(chunk));
    },
    drained: () => this.#balance(),
    closed: (error) => {
      const message = error === undefined ? 'it closed the connection' : error.message;
      this.#guard('backend', () => this.#backendLost(message));
    },
  };

  /** No new streams; the connection closes when those that run have ended (RFC 9113 section 6.8). */
  shutdown(): void {
    this.#guard('client', () => {
      // Before the backend's SETTINGS the client may not be told anything.
      if (this.#state.kind === 'opening') this.#close();
      else this.#goAway('shutting down');
    });
  }

  destroy(): void {
    this.#end({ kind: 'closed' });
    this.#clientTransport?.destroy();
    this.#backendTransport?.destroy();
  }

  // What the sides ask for.

  /** The backend's SETTINGS have come: the client may go on. */
  opened(): void {
    if (this.#state.kind !== 'opening') return;
    this.#state = { kind: 'open' };
    this.options.observer.connected();
    this.#resumeClient();
  }

  /** A new stream of the client, or undefined when it has been answered, or is not to be. */
  open(id: number, path: string, compressed: boolean, clientEnded: boolean): Stream | undefined {
    const state = this.#state;
    if (state.kind === 'refusing') {
      this.toClient.push(headersFrames(id, unavailableBlock(state.message, false), true, this.gate.maxFrameSize));
      return undefined;
    }
    // Not served, and the client knows that by the GOAWAY.
    if (state.kind === 'draining' && id > state.lastStreamId) return undefined;
    const stream = this.#newStream(id, path, compressed);
    stream.clientEnded = clientEnded;
    this.streams.set(id, stream);
    this.options.observer.streamOpened(path, stream.kind);
    if (stream.kind !== 'handle' && !this.backend.takes(id)) {
      this.resetToClient(stream, ErrorCode.REFUSED_STREAM);
      return undefined;
    }
    return stream;
  }

  /** The last frame of a stream is on its way to the client. */
  delivered(lane: Lane): void {
    const stream = this.streams.get(lane.id);
    if (stream === undefined) return;
    stream.delivered = true;
    this.closeIfOver(stream);
  }

  closeIfOver(stream: Stream): void {
    if (stream.delivered && stream.down.idle && (stream.clientEnded || stream.reset)) this.close(stream);
  }

  /** Forgets a stream and all that waits for it. */
  close(stream: Stream): void {
    if (!this.streams.delete(stream.id)) return;
    if (stream.kind === 'amend') this.#finishAmendment(stream);
    if (stream.kind === 'handle') stream.side.gate.discard(stream.up);
    this.gate.discard(stream.down);
    const { observer, now } = this.options;
    observer.streamClosed(stream.path, stream.kind, stream.outcome, stream.status, now() - stream.openedAt);
  }

  /** The server's RST_STREAM goes to the client, behind what waits. */
  resetByServer(stream: Stream, frame: Frame): void {
    if (!stream.serverEnded) stream.outcome = 'reset';
    stream.serverEnded = true;
    stream.reset = true;
    this.gate.frames(stream.down, frame.buffer, frame.start, frame.end, true);
  }

  resetToClient(stream: Stream, code: ErrorCode): void {
    this.toClient.push(rstStream(stream.id, code));
    stream.outcome = 'unavailable';
    this.close(stream);
  }

  /** The client has broken the rules of one stream: both ends hear of it (RFC 9113 section 5.4.2). */
  resetBoth(stream: Stream, code: ErrorCode): void {
    this.toClient.push(rstStream(stream.id, code));
    if (stream.kind === 'handle') stream.side.cancel(stream, code);
    else this.toBackend.push(rstStream(stream.id, code));
    stream.outcome = 'cancelled';
    this.close(stream);
  }

  /** The client was told to go, and that streams up to this one are served. */
  drain(lastStreamId: number, until: Until): void {
    const before = this.#state;
    if (before.kind === 'open') this.#state = { kind: 'draining', lastStreamId, until };
    if (before.kind !== 'draining') return;
    this.#state = {
      kind: 'draining',
      lastStreamId: Math.min(before.lastStreamId, lastStreamId),
      until: before.until === 'streams' ? 'streams' : until,
    };
  }

  retireLocal(side: LocalSide): void {
    if (this.#local === side) this.#local = undefined;
  }

  /** The backend has made its initial window smaller: streams that it does not know keep theirs. */
  keepLocalWindows(bytes: number): void {
    for (const stream of this.streams.values())
      if (stream.kind === 'handle' && !stream.clientEnded) this.toClient.push(windowUpdate(stream.id, bytes));
  }

  readRequest(stream: AmendStream, part: Buffer): void {
    const { amendment } = stream;
    if (amendment.state.kind === 'passing') return;
    const before = amendment.kept;
    const collected = amendment.request.add(part);
    if (collected === 'unfit' || this.held + part.length > this.options.heldLimit) amendment.request.clear();
    this.held += amendment.kept - before;
  }

  /** The response is whole: asks what to append. */
  amend(stream: AmendStream): void {
    const { amendment } = stream;
    if (amendment.request.state !== 'whole') {
      this.passUnamended(stream, 'request', undefined);
      return;
    }
    const timer = setTimeout(() => {
      this.#guard('backend', () => this.passUnamended(stream, 'slow', undefined));
    }, this.options.amendTimeout);
    amendment.state = { kind: 'asking', timer };
    const exchange = {
      path: stream.path,
      request: amendment.request.message(),
      response: amendment.response.message(),
    };
    const release = (appended: Uint8Array | undefined): void => {
      this.#guard('backend', () => this.#release(stream, appended));
    };
    const failed = (error: unknown): void => {
      this.#guard('backend', () => this.passUnamended(stream, 'failed', error));
    };
    try {
      this.options.interception.amend(exchange).then(release, failed);
    } catch (error) {
      failed(error);
    }
  }

  passUnamended(stream: AmendStream, reason: SkipReason, error: unknown): void {
    if (stream.amendment.state.kind === 'passing') return;
    this.options.observer.amendSkipped(stream.path, reason, error);
    this.#release(stream, undefined);
  }

  #release(stream: AmendStream, appended: Uint8Array | undefined): void {
    const { amendment } = stream;
    if (amendment.state.kind === 'passing') return;
    const { charged, last } = amendment;
    const parts = amendment.release(appended);
    amendment.charged = 0;
    this.#finishAmendment(stream);
    this.gate.release(stream.down, parts, charged, last);
    if (this.streams.has(stream.id)) this.backend.grantStream(stream);
  }

  #finishAmendment(stream: AmendStream): void {
    const { amendment } = stream;
    this.held -= amendment.kept;
    this.backend.flow.left(stream.down, amendment.charged);
    amendment.finish();
  }

  #newStream(id: number, path: string, compressed: boolean): Stream {
    const { interception, now, requestLimit, responseLimit } = this.options;
    let route = interception.route(path);
    // A compressed request is read by the local server, which can.
    if (route === 'amend' && compressed) route = 'handle';
    const window = this.client.initialWindow;
    const base = {
      id,
      path,
      openedAt: now(),
      clientEnded: false,
      serverEnded: false,
      delivered: false,
      reset: false,
      answered: false,
      outcome: 'cancelled' as const,
      status: undefined,
    };
    switch (route) {
      case 'pass':
        return { ...base, kind: route, down: new Lane(id, window, this.backend.flow) };
      case 'amend':
        return {
          ...base,
          kind: route,
          down: new Lane(id, window, this.backend.flow),
          amendment: new Amendment(requestLimit, responseLimit, window),
        };
      case 'handle': {
        const side = this.#localSide();
        const up = new Lane(id, side.initialWindow, side.requests);
        return { ...base, kind: route, side, up, down: new Lane(id, window, side) };
      }
    }
  }

  #localSide(): LocalSide {
    if (this.#local !== undefined) return this.#local;
    const side = new LocalSide(this);
    const transport = this.options.connectLocal({
      data: (chunk) => {
        if (!this.#isOver()) this.#guard('local', () => side.reader.push(chunk), side);
      },
      drained: () => this.#balance(),
      closed: () => this.#guard('local', () => this.#localLost(side)),
    });
    side.transport = transport;
    side.outbox.open(transport);
    this.#local = side;
    this.#locals.add(side);
    return side;
  }

  #localLost(side: LocalSide): void {
    this.retireLocal(side);
    this.#locals.delete(side);
    side.outbox.shut();
    for (const stream of this.streams.values())
      if (stream.kind === 'handle' && stream.side === side && !stream.serverEnded)
        this.#unavailable(stream, 'cri-resize-shim ended the call');
  }

  /** Ends a stream for a server that is not there any more. */
  #unavailable(stream: Stream, message: string): void {
    stream.outcome = 'unavailable';
    stream.status = 14;
    stream.serverEnded = true;
    stream.reset = true;
    if (stream.kind === 'amend' && stream.amendment.holding) {
      this.#finishAmendment(stream);
      this.gate.discard(stream.down);
    }
    const block = unavailableBlock(message, stream.answered);
    const frames = headersFrames(stream.id, block, true, this.gate.maxFrameSize);
    this.gate.frames(stream.down, frames, 0, frames.length, true);
  }

  #backendLost(reason: string): void {
    if (this.#isOver() || this.backend.gone) return;
    const message = `backend unavailable: ${reason}`;
    this.backend.gone = true;
    this.toBackend.shut();
    this.#backendTransport?.end();
    this.options.observer.backendLost(message);
    if (this.#state.kind === 'opening') {
      this.#refuse(message);
      return;
    }
    for (const stream of this.streams.values())
      if (stream.kind !== 'handle' && !stream.serverEnded) this.#unavailable(stream, message);
    while (this.client.acknowledge());
    this.#goAway(message);
  }

  /** Tells the client to go: it is served up to the last stream that it has opened. */
  #goAway(message: string): void {
    if (this.#state.kind !== 'open' && this.#state.kind !== 'draining') return;
    const last = this.client.lastStreamId;
    this.toClient.push(goaway(last, ErrorCode.NO_ERROR, Buffer.from(message)));
    this.drain(last, 'streams');
  }

  #resumeClient(): void {
    try {
      this.client.reader.resume();
    } catch (error) {
      this.#failed('client', error, undefined);
    }
  }

  /** Without a backend we are the server, as far as it takes to say so. */
  #refuse(message: string): void {
    const timer = setTimeout(() => this.#guard('client', () => this.#close()), this.options.refuseTimeout);
    this.#state = { kind: 'refusing', message, timer };
    this.toClient.push(settingsFrame([]));
    while (this.client.acknowledge());
    this.#resumeClient();
  }

  #clientClosed(): void {
    if (this.#state.kind === 'closed') return;
    for (const stream of this.streams.values()) stream.outcome = 'cancelled';
    this.#end({ kind: 'closed' });
    this.#clientTransport?.destroy();
    this.#backendTransport?.end();
    const backend = this.#backendTransport;
    setTimeout(() => backend?.destroy(), this.options.lingerTimeout).unref();
  }

  /** Runs what a transport has brought; ends the connection, and nothing else, when it was wrong. */
  #guard(side: Side, action: () => void, local?: LocalSide): void {
    try {
      action();
    } catch (error) {
      this.#failed(side, error, local);
    }
    this.#settle();
  }

  #failed(side: Side, error: unknown, local: LocalSide | undefined): void {
    if (this.#isOver()) return;
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    const message = error instanceof Error ? error.message : String(error);
    this.options.observer.protocolError(side, code, message);
    if (side === 'local' && local !== undefined) {
      local.transport?.destroy();
      this.#localLost(local);
      return;
    }
    if (side === 'backend' && error instanceof ConnectionError) {
      this.toBackend.push(goaway(0, code, Buffer.from(message)));
      this.toBackend.flush();
      this.#backendTransport?.end();
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
    for (const side of this.#locals) side.settle();
    if (this.#state.kind === 'draining' && this.#state.until === 'streams' && this.running === 0) {
      this.#close();
      return;
    }
    if (this.#state.kind === 'refusing' && this.client.lastStreamId > 0) {
      this.toClient.push(goaway(this.client.lastStreamId, ErrorCode.NO_ERROR, Buffer.from(this.#state.message)));
      this.#close();
      return;
    }
    this.toClient.flush();
    this.toBackend.flush();
    this.#balance();
  }

  /** Reads no faster than is taken. */
  #balance(): void {
    if (this.#isOver()) return;
    const client = this.#clientTransport;
    const backend = this.#backendTransport;
    if (client === undefined || backend === undefined) return;
    const clientBacklog = client.backlog;
    let full = clientBacklog > OWN_BACKLOG || (!this.backend.gone && backend.backlog > BACKLOG);
    for (const { transport } of this.#locals) {
      if (transport === undefined) continue;
      setReading(transport, clientBacklog <= BACKLOG);
      full ||= transport.backlog > BACKLOG;
    }
    setReading(backend, clientBacklog <= BACKLOG);
    setReading(client, !full && !this.client.reader.stopped);
  }

  /** Says what is left to say and closes, without waiting for streams. */
  #close(): void {
    if (this.#isOver()) return;
    this.toClient.flush();
    this.toBackend.flush();
    const client = this.#clientTransport;
    const backend = this.#backendTransport;
    const timer = setTimeout(() => {
      client?.destroy();
      backend?.destroy();
    }, this.options.lingerTimeout);
    this.#end({ kind: 'closing', timer });
    // What the client still sends is read and dropped: closing on unread bytes would take the last answers from it.
    client?.resume();
    client?.end();
    backend?.end();
  }

  /** Leaves the present state for a last one. */
  #end(next: State): void {
    const state = this.#state;
    if (state.kind === 'refusing' || state.kind === 'closing') clearTimeout(state.timer);
    this.#state = next;
    for (const stream of [...this.streams.values()]) {
      if (stream.kind === 'handle') stream.side.cancel(stream, ErrorCode.CANCEL);
      this.close(stream);
    }
    for (const { outbox, transport } of this.#locals) {
      outbox.flush();
      transport?.end();
    }
    this.#locals.clear();
    this.#local = undefined;
  }

  #isOver(): boolean {
    return this.#state.kind === 'closing' || this.#state.kind === 'closed';
  }
}

function setReading(transport: Transport, reading: boolean): void {
  if (reading) transport.resume();
  else transport.pause();
}
