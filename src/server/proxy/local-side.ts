import { Gate, type Lane, type LaneSource } from './flow-control.ts';
import { statusOf } from './grpc.ts';
import { type LocalStream, serverEnded } from './stream.ts';
import type { Switch } from './connection.ts';
import {
  DEFAULT_WINDOW,
  ErrorCode,
  FRAME_HEADER_SIZE,
  Flag,
  type Frame,
  FrameReader,
  FrameType,
  HeaderAssembly,
  type HeaderBlock,
  type HeaderField,
  HpackEncoder,
  LARGEST_WINDOW,
  NO_TABLE_NO_PUSH,
  PREFACE,
  checkFrame,
  headersInPlace,
  readSettings,
  settingsAck,
  settingsFrame,
  windowUpdate,
} from '../http2/index.ts';
import { Outbox } from './transport/index.ts';

/**
 * One connection to the server in this process. To it the switch is an ordinary client, with windows of its own: what that
 * server sends waits here for the real client's windows, and is bounded by one initial window for each stream.
 */
export class LocalSide implements LaneSource {
  readonly reader = new FrameReader((frame) => this.#frame(frame));
  readonly outbox = new Outbox();
  /** Requests towards the server: the client follows the backend's windows, which this server does not know. */
  readonly gate = new Gate(this.outbox);
  /** Bytes of the connection window to give back to the server. */
  #owed = 0;
  #initialWindow = DEFAULT_WINDOW;
  readonly #switch: Switch;
  readonly #assembly: HeaderAssembly;
  readonly #encoder = new HpackEncoder();
  readonly #requests: LaneSource;

  constructor(core: Switch) {
    this.#switch = core;
    this.#assembly = new HeaderAssembly(core.options.headerListLimit);
    this.#requests = {
      left: (lane, bytes) => this.#creditClient(lane.id, bytes),
      finished: () => undefined,
    };
    this.outbox.push(PREFACE);
    this.outbox.push(settingsFrame(NO_TABLE_NO_PUSH));
  }

  /** The window of a new stream towards the server, in bytes. */
  get initialWindow(): number {
    return this.#initialWindow;
  }

  /** Who is told how requests go. */
  get requests(): LaneSource {
    return this.#requests;
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    this.reader.push(chunk);
  }

  open(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    this.#headersTo(stream, fields, endStream);
    // The backend's initial window may be small, and it will never widen a stream that it does not know.
    const missing = DEFAULT_WINDOW - this.#switch.backend.initialWindow;
    if (missing > 0 && !endStream) this.#switch.toClient.push(windowUpdate(stream.id, missing));
  }

  trailers(stream: LocalStream, fields: readonly HeaderField[]): void {
    this.#headersTo(stream, fields, true);
  }

  /** DATA of a request. */
  request(stream: LocalStream, frame: Frame): void {
    if (this.gate.pass(stream.up, frame)) {
      this.#creditClient(stream.id, frame.length);
      return;
    }
    this.gate.data(stream.up, frame.content(), frame.length, stream.clientEnded);
    const allowed = DEFAULT_WINDOW + this.#switch.backend.largestInitialWindow;
    if (stream.up.charged > allowed) this.#switch.streams.resetBoth(stream, ErrorCode.FLOW_CONTROL_ERROR);
  }

  settle(): void {
    if (this.#owed > 0) this.outbox.push(windowUpdate(0, this.#owed));
    this.#owed = 0;
    // Its pings are answered at once: it costs no system call.
    this.outbox.hurry();
  }

  left(lane: Lane, bytes: number): void {
    const stream = this.#switch.streams.get(lane.id);
    if (stream !== undefined && !stream.serverEnded) this.outbox.push(windowUpdate(lane.id, bytes));
  }

  finished(lane: Lane): void {
    this.#switch.streams.delivered(lane);
  }

  #headersTo(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    const roomy = this.#encoder.encode(fields, FRAME_HEADER_SIZE);
    const frames = headersInPlace(stream.id, roomy, endStream, this.gate.maxFrameSize);
    this.gate.frames(stream.up, frames, 0, frames.length, false);
  }

  #creditClient(id: number, bytes: number): void {
    const stream = this.#switch.streams.get(id);
    if (bytes > 0 && stream !== undefined && !stream.clientEnded) this.#switch.toClient.push(windowUpdate(id, bytes));
  }

  #frame(frame: Frame): void {
    checkFrame(frame);
    const block = this.#assembly.take(frame);
    switch (frame.type) {
      case FrameType.DATA:
        this.#data(frame);
        return;
      case FrameType.HEADERS:
      case FrameType.CONTINUATION:
        if (block !== undefined) this.#headers(block);
        return;
      case FrameType.RST_STREAM: {
        const stream = this.#stream(frame.streamId);
        if (stream !== undefined && !stream.reset) this.#switch.streams.resetByServer(stream, frame);
        return;
      }
      case FrameType.SETTINGS:
        if (!frame.has(Flag.ACK)) this.#settings(frame);
        return;
      case FrameType.PING:
        if (frame.has(Flag.ACK)) return;
        this.#switch.acknowledgePing(this.outbox, frame);
        this.#switch.options.observer.pingAnswered('local');
        return;
      case FrameType.GOAWAY:
        // What runs goes on; the next stream gets a new connection.
        this.#switch.retire(this);
        return;
      case FrameType.WINDOW_UPDATE:
        this.#windowUpdate(frame);
        return;
      default:
        return;
    }
  }

  #stream(id: number): LocalStream | undefined {
    const stream = this.#switch.streams.get(id);
    return stream?.kind === 'handle' && stream.side === this ? stream : undefined;
  }

  #data(frame: Frame): void {
    const size = frame.length;
    this.#owed += size;
    const stream = this.#stream(frame.streamId);
    if (stream === undefined || stream.serverEnded) return;
    const last = frame.has(Flag.END_STREAM);
    if (last) serverEnded(stream);
    const { gate } = this.#switch;
    if (!gate.pass(stream.down, frame)) {
      gate.data(stream.down, frame.content(), size, last);
      return;
    }
    if (last) this.#switch.streams.delivered(stream.down);
    else if (size > 0) this.outbox.push(windowUpdate(stream.id, size));
  }

  #headers(headers: HeaderBlock): void {
    const stream = this.#stream(headers.streamId);
    if (stream === undefined || stream.serverEnded) return;
    const core = this.#switch;
    if (headers.endStream) {
      serverEnded(stream);
      if (core.options.observer.wantsStatus) stream.status = statusOf(headers.block);
    }
    stream.answered = true;
    core.gate.frames(stream.down, headers.buffer, headers.start, headers.end, headers.endStream);
  }

  #settings(frame: Frame): void {
    const settings = readSettings(frame);
    this.gate.maxFrameSize = settings.maxFrameSize ?? this.gate.maxFrameSize;
    if (settings.initialWindow !== undefined) {
      const change = settings.initialWindow - this.#initialWindow;
      this.#initialWindow = settings.initialWindow;
      for (const stream of this.#switch.streams.all())
        if (stream.kind === 'handle' && stream.side === this) stream.up.shift(change);
    }
    this.outbox.push(settingsAck());
    this.gate.pump();
  }

  #windowUpdate(frame: Frame): void {
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (frame.streamId === 0) {
      this.gate.grow(increment);
      this.gate.pump();
      return;
    }
    const stream = this.#stream(frame.streamId);
    if (stream === undefined) return;
    stream.up.window += increment;
    this.gate.drain(stream.up);
  }
}
