import { MiB } from '../../core/index.ts';
import {
  type ConnectionError,
  DEFAULT_WINDOW,
  Flag,
  FRAME_HEADER_SIZE,
  type Frame,
  type FrameReader,
  type HeaderBlock,
  type HeaderField,
  HpackEncoder,
  headersInPlace,
  LARGEST_WINDOW,
  NO_TABLE_NO_PUSH,
  PREFACE,
  readSettings,
  rstStream,
  settingsAck,
  settingsFrame,
  windowUpdate,
} from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { frameReader } from './dispatch.ts';
import { FlowControl } from './flow-control.ts';
import { statusOf } from './grpc.ts';
import { Lane, type LaneSource } from './lane.ts';
import { Outbox } from './outbox.ts';
import { RequestCollector } from './request-collector.ts';
import { type LocalPeer, type LocalStream, serverEnded } from './stream.ts';
import type { Transport } from './transport.ts';

/** Bytes of the local server that may wait here for the client's windows. */
export const CONNECTION_WINDOW = MiB;

const NOTHING = Buffer.alloc(0);

/**
 * One connection to the local server, to which the proxy is an ordinary client with windows of its own. What the server
 * sends waits here for the client's windows; the connection window bounds it. What the client sends and the server does
 * not take occupies the client's own connection window.
 */
export class LocalSide implements LocalPeer {
  readonly reader: FrameReader;
  readonly outbox: Outbox;
  /** Requests towards the server. The client follows the backend's windows, which this server does not know. */
  readonly flowControl: FlowControl;
  /** Bytes of the connection window to return to the server. */
  #windowToReturn = 0;
  #initialWindow = DEFAULT_WINDOW;
  readonly #collector: RequestCollector;
  readonly #encoder = new HpackEncoder();
  /** The lanes of streams towards the server. */
  readonly #up = new Map<number, Lane>();
  readonly #requests: LaneSource;

  /** @param retire called when no new streams are to be opened on this connection */
  constructor(
    private readonly parts: ConnectionParts,
    retire: (side: LocalSide) => void,
  ) {
    this.#collector = new RequestCollector(parts);
    this.reader = frameReader(parts.options.headerListLimit, {
      data: (frame) => this.#data(frame),
      headers: (block) => this.#headers(block),
      reset: (frame) => this.#reset(frame),
      settings: (frame) => this.#settings(frame),
      settingsAcknowledged: () => undefined,
      ping: (frame) => this.#ping(frame),
      pingAcknowledged: () => undefined,
      // Running streams continue; the next stream gets a new connection.
      goaway: () => retire(this),
      windowUpdate: (frame) => this.#windowUpdate(frame),
    });
    this.#requests = {
      released: (lane, bytes) => this.#collector.returnWindow(lane.id, bytes),
      finished: (lane) => {
        const stream = this.#stream(lane.id);
        if (stream !== undefined) this.#collector.drop(stream);
      },
    };
    this.outbox = new Outbox(parts.options.deferredWriteDelay > 0);
    this.flowControl = new FlowControl(this.outbox);
    this.outbox.push(PREFACE);
    this.outbox.push(settingsFrame(NO_TABLE_NO_PUSH));
    this.outbox.push(windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW));
  }

  get waiting(): number {
    return this.outbox.size;
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    this.reader.push(chunk);
  }

  open(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    const up = new Lane(stream.id, this.#initialWindow, this.#requests);
    this.#up.set(stream.id, up);
    const padded = this.#encoder.encode(fields, FRAME_HEADER_SIZE);
    const frames = headersInPlace(stream.id, padded, endStream, this.flowControl.maxFrameSize);
    this.flowControl.frames(up, frames, 0, frames.length, false);
  }

  ended(stream: LocalStream): void {
    const up = this.#up.get(stream.id);
    if (up === undefined) return;
    if (stream.collected === undefined) this.flowControl.data(up, NOTHING, 0, true);
    else this.#complete(stream, up);
  }

  request(stream: LocalStream, frame: Frame): void {
    const up = this.#up.get(stream.id);
    if (up === undefined) return;
    const isWhole = stream.clientEnded && stream.collected === undefined;
    if (isWhole && this.flowControl.pass(up, frame)) {
      this.#collector.returnWindow(stream.id, frame.length);
      return;
    }
    this.#collector.add(stream, frame);
    if (stream.clientEnded) this.#complete(stream, up);
  }

  cancel({ id }: LocalStream, code: number): void {
    this.outbox.push(rstStream(id, code));
  }

  discard(stream: LocalStream): void {
    const up = this.#up.get(stream.id);
    this.#up.delete(stream.id);
    if (up !== undefined) this.flowControl.discard(up);
    this.#collector.drop(stream);
  }

  /** Returns connection window to the server and writes what waits for it. */
  flush(): void {
    if (this.#windowToReturn > 0) this.outbox.push(windowUpdate(0, this.#windowToReturn));
    this.#windowToReturn = 0;
    // Deferred bytes included: a write to the local server costs no system call.
    this.outbox.flushDeferred();
  }

  released(lane: Lane, bytes: number): void {
    this.#windowToReturn += bytes;
    const stream = this.parts.streams.get(lane.id);
    if (stream !== undefined && !stream.serverEnded) this.outbox.push(windowUpdate(lane.id, bytes));
  }

  finished(lane: Lane): void {
    this.parts.streams.delivered(lane);
  }

  /** Sends a collected request to the local server. */
  #complete(stream: LocalStream, up: Lane): void {
    if (stream.collected === undefined) return;
    const blocks = this.parts.options.shared.requests.complete(stream.collected);
    this.flowControl.hold(up);
    this.flowControl.release(up, undefined, blocks, 0, true);
  }

  #reset(frame: Frame): void {
    const stream = this.#stream(frame.streamId);
    if (stream !== undefined && !stream.reset) this.parts.streams.resetByServer(stream, frame);
  }

  #ping(frame: Frame): void {
    this.outbox.acknowledgePing(frame);
    this.parts.options.observer.pingAnswered('local');
  }

  #stream(id: number): LocalStream | undefined {
    const stream = this.parts.streams.get(id);
    return stream?.kind === 'handle' && stream.peer === this ? stream : undefined;
  }

  #data(frame: Frame): void {
    const size = frame.length;
    const stream = this.#stream(frame.streamId);
    if (stream === undefined || stream.serverEnded) {
      this.#windowToReturn += size;
      return;
    }
    const last = frame.has(Flag.END_STREAM);
    if (last) serverEnded(stream);
    const { flowControl } = this.parts;
    if (!flowControl.pass(stream.down, frame)) {
      flowControl.data(stream.down, frame.content(), size, last);
      return;
    }
    this.#windowToReturn += size;
    if (last) this.parts.streams.delivered(stream.down);
    else if (size > 0) this.outbox.push(windowUpdate(stream.id, size));
  }

  #headers(headers: HeaderBlock): void {
    const stream = this.#stream(headers.streamId);
    if (stream === undefined || stream.serverEnded) return;
    const parts = this.parts;
    if (headers.endStream) {
      serverEnded(stream);
      if (parts.options.observer.wantsStatus) stream.status = statusOf(headers.block);
    }
    stream.answered = true;
    parts.flowControl.frames(stream.down, headers.buffer, headers.start, headers.end, headers.endStream);
  }

  #settings(frame: Frame): void {
    const settings = readSettings(frame);
    this.flowControl.maxFrameSize = settings.maxFrameSize ?? this.flowControl.maxFrameSize;
    if (settings.initialWindow !== undefined) {
      const change = settings.initialWindow - this.#initialWindow;
      this.#initialWindow = settings.initialWindow;
      for (const up of this.#up.values()) up.shift(change);
    }
    this.outbox.push(settingsAck());
    this.flowControl.pump();
  }

  #windowUpdate(frame: Frame): void {
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (frame.streamId === 0) {
      this.flowControl.grow(increment);
      this.flowControl.pump();
      return;
    }
    const up = this.#up.get(frame.streamId);
    if (up === undefined) return;
    up.window += increment;
    this.flowControl.drain(up);
  }
}

/** Most connections have none, and each event asks: an iterator of an empty map would cost more than the question. */
const NONE: readonly Transport[] = [];

/** The connections to the local server: the one that takes new streams, and retired ones whose streams still run. */
export class LocalConnections {
  readonly #transports = new Map<LocalSide, Transport>();
  /** Takes new streams. */
  #current: LocalSide | undefined;
  /** The highest stream id that the current connection has opened. */
  #lastStreamId = 0;

  constructor(private readonly parts: ConnectionParts) {}

  /**
   * Returns the connection that takes new streams. Opens it if the first stream needs it. Undefined if it has opened a
   * later stream than this one: the ids of new streams only increase (RFC 9113 5.1.1).
   */
  open(streamId: number): LocalSide | undefined {
    if (this.#current !== undefined && streamId <= this.#lastStreamId) return undefined;
    this.#lastStreamId = streamId;
    return this.#current ?? this.#connect();
  }

  #connect(): LocalSide {
    const parts = this.parts;
    const side = new LocalSide(parts, (retired) => this.retire(retired));
    const transport = parts.options.connectLocal({
      data: (chunk) => !this.#transports.has(side) || parts.receive('local', side, chunk),
      drained: () => parts.balance(),
      closed: () => parts.run('local', () => this.#lost(side)),
    });
    side.outbox.open(transport);
    this.#current = side;
    this.#transports.set(side, transport);
    return side;
  }

  /** Opens no new streams on this connection: the next stream gets a new one. */
  retire(side: LocalSide): void {
    if (this.#current === side) this.#current = undefined;
  }

  /** Closes a connection whose server broke the protocol. */
  fail(side: LocalSide, error: ConnectionError): void {
    this.parts.options.observer.protocolError('local', error.code, error.message);
    const transport = this.#transports.get(side);
    this.#lost(side);
    transport?.destroy();
  }

  transports(): Iterable<Transport> {
    return this.#transports.size === 0 ? NONE : this.#transports.values();
  }

  /** Bytes that were written and have not left the process. */
  get backlog(): number {
    let bytes = 0;
    for (const transport of this.transports()) bytes += transport.backlog;
    return bytes;
  }

  flush(): void {
    if (this.#transports.size === 0) return;
    for (const side of this.#transports.keys()) side.flush();
  }

  /** Makes memory of sent data available again. */
  recycle(): void {
    if (this.#transports.size === 0) return;
    for (const side of this.#transports.keys()) side.flowControl.recycle();
  }

  /** Closes all connections. */
  end(): void {
    for (const [side, transport] of this.#transports) {
      side.outbox.close();
      transport.end();
    }
    this.#transports.clear();
    this.#current = undefined;
  }

  #lost(side: LocalSide): void {
    this.retire(side);
    this.#transports.delete(side);
    side.outbox.close();
    this.parts.streams.localLost(side, 'cri-resize-shim ended the call');
  }
}
