import { MiB } from '../../core/quantities/index.ts';
import {
  DEFAULT_WINDOW,
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
import { FlowControl, Lane, type LaneSource } from './flow-control/index.ts';
import { statusOf } from './grpc.ts';
import { RequestCollector, type RequestCollectorPorts } from './handling/index.ts';
import { type LocalPeer, type LocalStream, serverEnded } from './streams/index.ts';
import { Outbox } from './transport/index.ts';

/** Bytes of the local server that may wait here for the client's windows. */
export const CONNECTION_WINDOW = MiB;

const NOTHING = Buffer.alloc(0);

/** What {@link LocalSide} uses of the connection. */
export interface LocalSidePorts extends RequestCollectorPorts {
  /** Towards the client. */
  readonly flowControl: FlowControl;
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
  readonly #collector: RequestCollector;
  readonly #encoder = new HpackEncoder();
  /** The lanes of streams towards the server. */
  readonly #up = new Map<number, Lane>();
  readonly #requests: LaneSource;

  constructor(ports: LocalSidePorts) {
    this.#ports = ports;
    this.#collector = new RequestCollector(ports);
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
      released: (lane, bytes) => this.#collector.returnWindow(lane.id, bytes),
      finished: (lane) => {
        const stream = this.#stream(lane.id);
        if (stream !== undefined) this.#collector.drop(stream);
      },
    };
    this.outbox = new Outbox(ports.options.deferredWriteDelay > 0);
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
    const stream = this.#ports.streams.get(lane.id);
    if (stream !== undefined && !stream.serverEnded) this.outbox.push(windowUpdate(lane.id, bytes));
  }

  finished(lane: Lane): void {
    this.#ports.streams.delivered(lane);
  }

  /** Sends a collected request to the local server. */
  #complete(stream: LocalStream, up: Lane): void {
    if (stream.collected === undefined) return;
    const parts = this.#ports.options.shared.requests.complete(stream.collected);
    this.flowControl.hold(up);
    this.flowControl.release(up, undefined, parts, 0, true);
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
