import {
  DEFAULT_WINDOW,
  ErrorCode,
  FRAME_HEADER_SIZE,
  Flag,
  type Frame,
  type FrameReader,
  type HeaderBlock,
  type HeaderField,
  HpackEncoder,
  LARGEST_WINDOW,
  NO_TABLE_NO_PUSH,
  PREFACE,
  headersInPlace,
  readSettings,
  settingsAck,
  settingsFrame,
  rstStream,
  windowUpdate,
} from '../http2/index.ts';
import { frameReader } from './dispatch.ts';
import { FlowControl, type Lane, type LaneSource } from './flow-control/index.ts';
import { statusOf } from './grpc.ts';
import type { Side } from './observer.ts';
import type { ProxyConnectionOptions } from './options.ts';
import { type LocalPeer, type LocalStream, type Streams, serverEnded } from './streams/index.ts';
import { Outbox } from './transport/index.ts';

/** Bytes of the local server that may wait here for the client's windows. */
export const CONNECTION_WINDOW = 1_048_576;

const NOTHING = Buffer.alloc(0);
const REQUESTS_FULL = 'cri-resize-shim: the request is too long, or the requests of all clients are: retry later';

/** What {@link LocalSide} uses of the connection. */
export interface LocalSidePorts {
  readonly options: ProxyConnectionOptions;
  readonly toClient: Outbox;
  /** Towards the client. */
  readonly flowControl: FlowControl;
  readonly streams: Streams;
  /** The backend's SETTINGS_INITIAL_WINDOW_SIZE, in bytes. */
  readonly backend: { readonly initialWindow: number };
  readonly client: {
    /** DATA of the client has left the proxy: its connection window goes back to the client. */
    windowReleased(bytes: number): void;
  };
  /** Handles an event of a side, then writes what has gathered. */
  run(side: Side, action: () => void): void;
  readonly locals: {
    /** Opens no new streams on this connection. */
    retire(side: LocalSide): void;
  };
}

/**
 * One connection to the local server, to which the proxy is an ordinary client with windows of its own. What the server
 * sends waits here for the client's windows; the connection window bounds it. What the client sends and the server does not take
 * occupies the client's own connection window.
 */
export class LocalSide implements LocalPeer {
  readonly reader: FrameReader;
  readonly outbox: Outbox;
  /** Requests towards the server. The client follows the backend's windows, which this server does not know. */
  readonly flowControl: FlowControl;
  /** Bytes of the connection window to return to the server. */
  #windowToReturn = 0;
  #initialWindow = DEFAULT_WINDOW;
  readonly #ports: LocalSidePorts;
  readonly #encoder = new HpackEncoder();
  readonly #requests: LaneSource;

  constructor(ports: LocalSidePorts) {
    this.#ports = ports;
    this.reader = frameReader(ports.options.headerListLimit, {
      data: (frame) => this.#data(frame),
      headers: (block) => this.#headers(block),
      reset: (frame) => this.#reset(frame),
      settings: (frame) => this.#settings(frame),
      settingsAcknowledged: () => undefined,
      ping: (frame) => this.#ping(frame),
      pingAcknowledged: () => undefined,
      // Running streams continue; the next stream gets a new connection.
      goaway: () => ports.locals.retire(this),
      windowUpdate: (frame) => this.#windowUpdate(frame),
    });
    this.#requests = {
      released: (lane, bytes) => this.#returnClientWindow(lane.id, bytes),
      finished: (lane) => {
        const stream = this.#stream(lane.id);
        if (stream !== undefined) this.#forget(stream);
      },
    };
    this.outbox = new Outbox(ports.options.deferredWriteDelay > 0);
    this.flowControl = new FlowControl(this.outbox);
    this.outbox.push(PREFACE);
    this.outbox.push(settingsFrame(NO_TABLE_NO_PUSH));
    this.outbox.push(windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW));
  }

  get initialWindow(): number {
    return this.#initialWindow;
  }

  get requests(): LaneSource {
    return this.#requests;
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    this.reader.push(chunk);
  }

  open(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    this.#sendHeaders(stream, fields, endStream);
    // The client assumes the backend's initial window, which may be small. The backend never widens a stream it does
    // not know.
    const missing = DEFAULT_WINDOW - this.#ports.backend.initialWindow;
    if (missing > 0 && !endStream) this.#ports.toClient.push(windowUpdate(stream.id, missing));
  }

  ended(stream: LocalStream): void {
    if (stream.collected === undefined) this.flowControl.data(stream.up, NOTHING, 0, true);
    else this.#complete(stream);
  }

  request(stream: LocalStream, frame: Frame): void {
    const isWhole = stream.clientEnded && stream.collected === undefined;
    if (isWhole && this.flowControl.pass(stream.up, frame)) this.#returnClientWindow(stream.id, frame.length);
    else this.#collect(stream, frame);
  }

  discard(stream: LocalStream): void {
    this.flowControl.discard(stream.up);
    this.#forget(stream);
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
    const stream = this.#ports.streams.get(lane.id);
    if (stream !== undefined && !stream.serverEnded) this.outbox.push(windowUpdate(lane.id, bytes));
  }

  finished(lane: Lane): void {
    this.#ports.streams.delivered(lane);
  }

  /**
   * Holds a request until its last frame has come: here an unfinished one costs its bytes only. The client gets their window back,
   * because the limit for all clients bounds them.
   */
  #collect(stream: LocalStream, frame: Frame): void {
    const { shared, handledRequestLimit } = this.#ports.options;
    stream.collected ??= { blocks: [], size: 0, refuse: () => this.#ports.run('client', () => this.#refuse(stream)) };
    const content = frame.content();
    this.#returnClientWindow(stream.id, frame.length);
    if (stream.collected.size + content.length > handledRequestLimit) this.#refuse(stream);
    else shared.requests.add(stream.collected, content);
    if (stream.clientEnded) this.#complete(stream);
  }

  /** Sends a collected request to the local server. */
  #complete(stream: LocalStream): void {
    if (stream.collected === undefined) return;
    const parts = this.#ports.options.shared.requests.complete(stream.collected);
    this.flowControl.hold(stream.up);
    this.flowControl.release(stream.up, undefined, parts, 0, true);
  }

  /** Ends a call whose request is too long, or the longest when there are too many. */
  #refuse(stream: LocalStream): void {
    this.#ports.options.observer.refused('requests');
    this.outbox.push(rstStream(stream.id, ErrorCode.CANCEL));
    this.discard(stream);
    stream.reset = true;
    if (stream.serverEnded) this.#ports.streams.closeIfOver(stream);
    else this.#ports.streams.refuseCall(stream, REQUESTS_FULL);
  }

  #forget(stream: LocalStream): void {
    if (stream.collected === undefined) return;
    this.#ports.options.shared.requests.drop(stream.collected);
    stream.collected = undefined;
  }

  #sendHeaders(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    const padded = this.#encoder.encode(fields, FRAME_HEADER_SIZE);
    const frames = headersInPlace(stream.id, padded, endStream, this.flowControl.maxFrameSize);
    this.flowControl.frames(stream.up, frames, 0, frames.length, false);
  }

  #returnClientWindow(id: number, bytes: number): void {
    const stream = this.#ports.streams.get(id);
    this.#ports.client.windowReleased(bytes);
    if (bytes > 0 && stream !== undefined && !stream.clientEnded) this.#ports.toClient.push(windowUpdate(id, bytes));
  }

  #reset(frame: Frame): void {
    const stream = this.#stream(frame.streamId);
    if (stream !== undefined && !stream.reset) this.#ports.streams.resetByServer(stream, frame);
  }

  #ping(frame: Frame): void {
    this.outbox.acknowledgePing(frame);
    this.#ports.options.observer.pingAnswered('local');
  }

  #stream(id: number): LocalStream | undefined {
    const stream = this.#ports.streams.get(id);
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
    const { flowControl } = this.#ports;
    if (!flowControl.pass(stream.down, frame)) {
      flowControl.data(stream.down, frame.content(), size, last);
      return;
    }
    this.#windowToReturn += size;
    if (last) this.#ports.streams.delivered(stream.down);
    else if (size > 0) this.outbox.push(windowUpdate(stream.id, size));
  }

  #headers(headers: HeaderBlock): void {
    const stream = this.#stream(headers.streamId);
    if (stream === undefined || stream.serverEnded) return;
    const ports = this.#ports;
    if (headers.endStream) {
      serverEnded(stream);
      if (ports.options.observer.wantsStatus) stream.status = statusOf(headers.block);
    }
    stream.answered = true;
    ports.flowControl.frames(stream.down, headers.buffer, headers.start, headers.end, headers.endStream);
  }

  #settings(frame: Frame): void {
    const settings = readSettings(frame);
    this.flowControl.maxFrameSize = settings.maxFrameSize ?? this.flowControl.maxFrameSize;
    if (settings.initialWindow !== undefined) {
      const change = settings.initialWindow - this.#initialWindow;
      this.#initialWindow = settings.initialWindow;
      for (const stream of this.#ports.streams.all())
        if (stream.kind === 'handle' && stream.peer === this) stream.up.shift(change);
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
    const stream = this.#stream(frame.streamId);
    if (stream === undefined) return;
    stream.up.window += increment;
    this.flowControl.drain(stream.up);
  }
}
