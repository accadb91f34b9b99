import { FloodMeter } from './flood-meter.ts';
import type { PassStream, Stream } from './stream.ts';
import type { Switch } from './connection.ts';
import {
  ConnectionError,
  DEFAULT_TABLE_SIZE,
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
  HpackDecoder,
  HpackEncoder,
  LARGEST_WINDOW,
  PREFACE,
  type Settings,
  checkFrame,
  headersInPlace,
  readSettings,
  settingsAck,
  settingsForServer,
  windowUpdate,
} from '../http2/index.ts';

/** Frames of one kind in a second that answer nothing of ours; see {@link FloodMeter}. */
const FLOOD_LIMIT = 10_000;

/** What the client sends: read, checked, and led to whoever owns the stream. */
export class ClientSide {
  readonly reader = new FrameReader((frame) => this.#frame(frame));
  /** The client's SETTINGS that have not been acknowledged to it, oldest first. */
  readonly unacknowledged: Settings[] = [];
  /** SETTINGS_INITIAL_WINDOW_SIZE of the client, as far as it was acknowledged. */
  initialWindow = DEFAULT_WINDOW;
  /** The client's SETTINGS, as the local server gets them. Undefined until they have come. */
  greeted = false;
  /** The highest stream that the client has opened. */
  lastStreamId = 0;
  /** Bytes of the connection window to give back to the client, for DATA that the backend does not get. */
  #owed = 0;
  #prefaceLeft = PREFACE.length;
  /** {@link Gate.passed} at the last ping. */
  #passed = 0;
  readonly #switch: Switch;
  readonly #assembly: HeaderAssembly;
  readonly #decoder: HpackDecoder;
  readonly #encoder = new HpackEncoder();
  readonly #pings: FloodMeter;
  readonly #settings: FloodMeter;
  readonly #resets: FloodMeter;

  constructor(core: Switch) {
    this.#switch = core;
    const { headerListLimit, now } = core.options;
    this.#assembly = new HeaderAssembly(headerListLimit);
    this.#decoder = new HpackDecoder(DEFAULT_TABLE_SIZE, headerListLimit);
    this.#pings = new FloodMeter('PING', FLOOD_LIMIT, now);
    this.#settings = new FloodMeter('SETTINGS', FLOOD_LIMIT, now);
    this.#resets = new FloodMeter('RST_STREAM', FLOOD_LIMIT, now);
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    const expected = Math.min(this.#prefaceLeft, chunk.length);
    if (expected > 0) {
      const from = PREFACE.length - this.#prefaceLeft;
      if (chunk.compare(PREFACE, from, from + expected, 0, expected) !== 0)
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'not an HTTP/2 client');
      this.#prefaceLeft -= expected;
    }
    if (expected < chunk.length) this.reader.push(expected === 0 ? chunk : chunk.subarray(expected));
  }

  /** The client gets these bytes of its connection window back, with the next {@link settle}. */
  owe(bytes: number): void {
    this.#owed += bytes;
  }

  settle(): void {
    if (this.#owed === 0) return;
    this.#switch.toClient.push(windowUpdate(0, this.#owed));
    this.#owed = 0;
  }

  /** The oldest of the client's SETTINGS takes effect, now that its acknowledgement is on its way (section 6.5.3). */
  acknowledge(): void {
    const settings = this.unacknowledged.shift();
    if (settings === undefined) return;
    const core = this.#switch;
    core.toClient.push(settingsAck());
    core.gate.maxFrameSize = settings.maxFrameSize ?? core.gate.maxFrameSize;
    if (settings.initialWindow === undefined) return;
    const change = settings.initialWindow - this.initialWindow;
    this.initialWindow = settings.initialWindow;
    core.streams.shiftWindows(change);
    if (change > 0) core.gate.pump();
  }

  /** Nobody else will. */
  acknowledgeAll(): void {
    while (this.unacknowledged.length > 0) this.acknowledge();
  }

  #frame(frame: Frame): void {
    checkFrame(frame);
    if (!this.greeted && (frame.type !== FrameType.SETTINGS || frame.has(Flag.ACK)))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the first frame is not SETTINGS');
    const block = this.#assembly.take(frame);
    switch (frame.type) {
      case FrameType.DATA:
        this.#data(frame);
        return;
      case FrameType.HEADERS:
      case FrameType.CONTINUATION:
        if (block !== undefined) this.#headers(block);
        return;
      case FrameType.RST_STREAM:
        this.#reset(frame);
        return;
      case FrameType.SETTINGS:
        if (frame.has(Flag.ACK)) this.#switch.backend.acknowledged(frame);
        else this.#readSettings(frame);
        return;
      case FrameType.PING:
        this.#ping(frame);
        return;
      case FrameType.GOAWAY:
        this.#switch.toBackend.pass(frame.buffer, frame.start, frame.end);
        return;
      case FrameType.WINDOW_UPDATE:
        this.#windowUpdate(frame);
        return;
      default:
        // PRIORITY is only advice, and to be ignored where it is not understood (RFC 9113 section 5.3.2), like unknown frames.
        return;
    }
  }

  #data(frame: Frame): void {
    const core = this.#switch;
    const stream = core.streams.get(frame.streamId);
    if (stream === undefined) {
      this.#refuseIdle(frame);
      // For a stream that is over on our side: the client may not have known yet.
      this.#owed += frame.length;
      return;
    }
    if (stream.clientEnded || stream.reset) {
      this.#owed += frame.length;
      if (stream.clientEnded) core.streams.resetBoth(stream, ErrorCode.STREAM_CLOSED);
      return;
    }
    if (frame.has(Flag.PADDED)) frame.content();
    stream.clientEnded = frame.has(Flag.END_STREAM);
    if (stream.kind === 'handle') {
      this.#owed += frame.length;
      stream.side.request(stream, frame);
    } else {
      if (core.backend.gone) this.#owed += frame.length;
      if (stream.kind === 'amend') core.amender.request(stream, frame.content());
      core.toBackend.pass(frame.buffer, frame.start, frame.end);
    }
    core.streams.closeIfOver(stream);
  }

  #headers(headers: HeaderBlock): void {
    const fields = this.#decoder.decode(headers.block);
    const stream = this.#switch.streams.get(headers.streamId);
    if (stream !== undefined) {
      this.#trailers(stream, fields, headers.endStream);
      return;
    }
    if (headers.streamId % 2 === 0)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the client opens a stream with an even number');
    if (headers.streamId > this.lastStreamId) {
      this.lastStreamId = headers.streamId;
      this.#open(headers, fields);
      return;
    }
    // Trailers of a stream that is over on our side may be under way; anything else opens a stream twice.
    if (!headers.endStream || fields.some(({ name }) => name === ':path'))
      throw new ConnectionError(ErrorCode.STREAM_CLOSED, `HEADERS for stream ${headers.streamId}, which is closed`);
  }

  #trailers(stream: Stream, fields: readonly HeaderField[], endStream: boolean): void {
    const core = this.#switch;
    if (stream.reset) return;
    if (stream.clientEnded) {
      core.streams.resetBoth(stream, ErrorCode.STREAM_CLOSED);
      return;
    }
    if (!endStream) {
      core.streams.resetBoth(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    stream.clientEnded = true;
    if (stream.kind === 'handle') stream.side.trailers(stream, fields);
    else this.#toBackend(stream.id, fields, true);
    core.streams.closeIfOver(stream);
  }

  #open(headers: HeaderBlock, fields: readonly HeaderField[]): void {
    const core = this.#switch;
    const { streamId, endStream } = headers;
    if (!core.admits(streamId)) return;
    let path = '';
    let encoding = 'identity';
    for (const { name, value } of fields) {
      if (name === ':path') path = value;
      else if (name === 'grpc-encoding') encoding = value;
    }
    const stream = core.streams.open(streamId, path, encoding !== 'identity');
    stream.clientEnded = endStream;
    if (stream.kind === 'handle') stream.side.open(stream, fields, endStream);
    else if (core.backend.takes(streamId)) this.#forward(headers, fields);
    else core.streams.refuse(stream, ErrorCode.REFUSED_STREAM);
  }

  /** As it came, where the backend understands it like that: most clients repeat fields from their dynamic table. */
  #forward(headers: HeaderBlock, fields: readonly HeaderField[]): void {
    const fits = headers.block.length <= this.#switch.backend.maxFrameSize;
    if (headers.bare && fits && this.#decoder.plain && this.#encoder.announced)
      this.#switch.toBackend.pass(headers.buffer, headers.start, headers.end);
    else this.#toBackend(headers.streamId, fields, headers.endStream);
  }

  #toBackend(id: number, fields: readonly HeaderField[], endStream: boolean): void {
    const roomy = this.#encoder.encode(fields, FRAME_HEADER_SIZE);
    this.#switch.toBackend.push(headersInPlace(id, roomy, endStream, this.#switch.backend.maxFrameSize));
  }

  #reset(frame: Frame): void {
    this.#resets.count();
    const core = this.#switch;
    const stream = core.streams.get(frame.streamId);
    if (stream === undefined) {
      this.#refuseIdle(frame);
      return;
    }
    const to = stream.kind === 'handle' ? stream.side.outbox : core.toBackend;
    to.pass(frame.buffer, frame.start, frame.end);
    stream.outcome = 'cancelled';
    core.streams.close(stream);
  }

  #readSettings(frame: Frame): void {
    this.#settings.count();
    const settings = readSettings(frame);
    this.unacknowledged.push(settings);
    const first = !this.greeted;
    this.greeted = true;
    const core = this.#switch;
    core.toBackend.push(settingsForServer(settings, first, core.options.readAhead));
    if (first) core.backend.flow.readAhead(core.options.readAhead);
    // Nobody else is there to acknowledge them.
    if (core.backend.gone) this.acknowledge();
    // The client hears the backend's SETTINGS first, as it must (RFC 9113 section 3.4); until then the rest waits.
    if (core.state.kind === 'opening') this.reader.stop();
  }

  #ping(frame: Frame): void {
    if (frame.has(Flag.ACK)) {
      this.#switch.farewell.heard(frame.buffer.subarray(frame.payload, frame.end));
      return;
    }
    // A Go client pings about every burst that it gets, to measure: those have a reason.
    if (this.#passed !== this.#switch.gate.passed) this.#pings.reset();
    this.#passed = this.#switch.gate.passed;
    this.#pings.count();
    this.#switch.acknowledgePing(this.#switch.toClient, frame);
    this.#switch.options.observer.pingAnswered('client');
  }

  #windowUpdate(frame: Frame): void {
    const core = this.#switch;
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (frame.streamId === 0) {
      if (increment === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
      if (!core.gate.grow(increment)) throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'window too large');
      core.gate.pump();
      return;
    }
    const stream = core.streams.get(frame.streamId);
    if (stream === undefined) {
      this.#refuseIdle(frame);
      return;
    }
    if (increment === 0) {
      core.streams.resetBoth(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    if (stream.down.window + increment > LARGEST_WINDOW) {
      core.streams.resetBoth(stream, ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    stream.down.window += increment;
    if (!stream.down.idle) core.gate.drain(stream.down);
    if (stream.kind === 'pass') this.#widen(stream, increment, frame);
    else if (stream.kind === 'amend') core.backend.grantStream(stream);
  }

  /** The backend hears what the client takes, as long as that and what it may send ahead make a window. */
  #widen(stream: PassStream, increment: number, frame: Frame): void {
    const { toBackend } = this.#switch;
    const { down } = stream;
    const tooMuch = down.window - down.charged + stream.ahead - LARGEST_WINDOW;
    if (tooMuch <= 0) {
      toBackend.pass(frame.buffer, frame.start, frame.end);
      return;
    }
    stream.ahead -= tooMuch;
    if (increment > tooMuch) toBackend.push(windowUpdate(stream.id, increment - tooMuch));
  }

  /** A frame for a stream that nobody opened is an error; one for a stream that is over is not (section 5.1). */
  #refuseIdle(frame: Frame): void {
    if (frame.streamId % 2 === 0 || frame.streamId > this.lastStreamId)
      throw new ConnectionError(
        ErrorCode.PROTOCOL_ERROR,
        `frame of type ${frame.type} for stream ${frame.streamId}, which is idle`,
      );
  }
}
