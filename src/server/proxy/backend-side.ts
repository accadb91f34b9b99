import {
  ConnectionError,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  FLOOD_LIMIT,
  Flag,
  FloodMeter,
  type Frame,
  type FrameReader,
  goaway,
  type HeaderBlock,
  LARGEST_STREAM,
  LARGEST_WINDOW,
  type PendingSettings,
  pendingSettings,
  readSettings,
  settingsForClient,
  windowUpdate,
} from '../../http2/index.ts';
import { BackendFlow } from './backend-flow.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { frameReader, refuseTooMany, TURN_COST } from './dispatch.ts';
import { messageSize, statusOf } from './grpc.ts';
import type { Lane } from './lane.ts';
import { type AmendStream, type MessageAmendStream, type PassStream, serverEnded } from './stream.ts';

/** After its first message, a stream gets read-ahead if the backend's window for it is smaller than this. */
const READ_AHEAD_BELOW = DEFAULT_WINDOW >> 1;
/** Window the backend keeps behind a message. With none, nghttp2 cannot end a stream's DATA or send trailers. */
const SPARE = 1024;

type BackendStream = PassStream | AmendStream | MessageAmendStream;

/** Returns the bytes that the backend may still send on a stream. */
const windowOf = ({ ahead, down }: PassStream): number => down.window - down.charged + ahead;

/** Reads what the backend sends. Forwards it to the client unchanged, except for responses that are amended. */
export class BackendSide {
  readonly reader: FrameReader;
  readonly flow: BackendFlow;
  /** The backend's SETTINGS_MAX_FRAME_SIZE. In force once the client's acknowledgement has been forwarded to it. */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  /** The backend's SETTINGS_INITIAL_WINDOW_SIZE, as last sent to the client. */
  initialWindow = DEFAULT_WINDOW;
  /** The connection to the backend is closed. */
  gone = false;
  /** The client has acknowledged the backend's first SETTINGS. */
  settingsAcknowledged = false;
  /** The backend's SETTINGS that the client has not acknowledged, oldest first. */
  readonly #unacknowledged: PendingSettings[] = [];
  /** The last stream that the backend serves, by its GOAWAY. */
  #lastStreamId = Infinity;
  #settingsReceived = false;
  readonly #pings: FloodMeter;
  readonly #settingsMeter: FloodMeter;
  readonly #goaways: FloodMeter;

  constructor(private readonly parts: ConnectionParts) {
    this.reader = frameReader(
      parts.options.headerListLimit,
      {
        data: (frame) => this.#data(frame),
        headers: (block) => this.#headers(block),
        reset: (frame) => this.#reset(frame),
        settings: (frame) => this.#settings(frame),
        settingsAcknowledged: () => parts.asClient(() => parts.control.acknowledge()),
        ping: (frame) => this.#ping(frame),
        pingAcknowledged: () => undefined,
        goaway: (frame) => this.#goaway(frame),
        windowUpdate: (frame) => this.#windowUpdate(frame),
      },
      // HEADERS of a response cost no more than other frames, because they open no call.
      { turn: TURN_COST, headers: 1 },
    );
    const { queueLimit, shared, now } = parts.options;
    const finished = (lane: Lane): void => parts.streams.delivered(lane);
    this.flow = new BackendFlow(parts.flowControl, finished, queueLimit, shared.queued);
    this.#pings = new FloodMeter('PING', FLOOD_LIMIT, now);
    this.#settingsMeter = new FloodMeter('SETTINGS', FLOOD_LIMIT, now);
    this.#goaways = new FloodMeter('GOAWAY', FLOOD_LIMIT, now);
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    this.reader.push(chunk);
  }

  /** Whether the backend serves a stream with this id. */
  accepts(streamId: number): boolean {
    return streamId <= this.#lastStreamId;
  }

  /** Forwards the client's acknowledgement of the backend's SETTINGS. */
  acknowledged(frame: Frame): void {
    const settings = this.#unacknowledged.shift();
    // A surplus acknowledgement is dropped: it would end the backend's connection and with it correct calls.
    if (settings === undefined) return;
    this.maxFrameSize = settings.maxFrameSize ?? this.maxFrameSize;
    this.parts.toBackend.pass(frame.buffer, frame.start, frame.end);
    this.settingsAcknowledged = true;
    this.parts.gracefulShutdown.proceed();
  }

  /** Grants the backend the connection window that the client's allows. */
  grantConnection(): void {
    const increment = this.flow.grant();
    if (increment > 0) this.parts.toBackend.push(windowUpdate(0, increment));
  }

  /** Grants the backend the window of an amended stream that the client's allows. */
  grantStream(stream: AmendStream | MessageAmendStream): void {
    const { amendment, down } = stream;
    const limit = Math.min(down.window + stream.reserved, LARGEST_WINDOW);
    const increment = limit - down.charged - amendment.charged - amendment.allowance;
    if (stream.serverEnded || increment <= 0) return;
    amendment.allowance += increment;
    this.parts.toBackend.push(windowUpdate(stream.id, increment));
  }

  #ping(frame: Frame): void {
    this.#pings.count();
    this.parts.toBackend.acknowledgePing(frame);
    this.parts.options.observer.pingAnswered('backend');
  }

  #windowUpdate(frame: Frame): void {
    if (frame.streamId === 0) this.#connectionWindow(frame);
    else if (this.#stream(frame) !== undefined) this.parts.toClient.pass(frame.buffer, frame.start, frame.end);
  }

  #connectionWindow(frame: Frame): void {
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    this.parts.client.windowGranted(increment);
    this.parts.toClient.deferWindow(increment);
  }

  /**
   * Returns the stream of a frame, or undefined if it has ended.
   * @throws ConnectionError if the backend never had such a stream
   */
  #stream(frame: { readonly streamId: number }): BackendStream | undefined {
    const stream = this.parts.streams.get(frame.streamId);
    if (stream !== undefined && stream.kind !== 'handle' && !stream.serverEnded) return stream;
    if (stream?.kind === 'handle' || frame.streamId % 2 === 0 || frame.streamId > this.parts.client.lastStreamId)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `frame for stream ${frame.streamId}, which is idle`);
    return undefined;
  }

  #data(frame: Frame): void {
    const size = frame.length;
    this.flow.received(size);
    const stream = this.#stream(frame);
    if (stream === undefined) return;
    if (frame.has(Flag.PADDED)) frame.content();
    if (frame.has(Flag.END_STREAM)) serverEnded(stream);
    this.#charge(stream, size);
    if (stream.kind === 'amend-each') this.parts.messageAmender.response(stream, frame);
    else if (stream.kind === 'pass' || !this.#amends(stream, frame)) this.#forward(stream, frame);
    if (!stream.serverEnded) this.#readAhead(stream, frame);
  }

  /** Passes DATA to the amender. Returns false if it is to be forwarded. */
  #amends(stream: AmendStream, frame: Frame): boolean {
    return stream.amendment.state.kind !== 'passing' && this.parts.amender.response(stream, frame);
  }

  /** Sends DATA to the client, or queues it. */
  #forward(stream: BackendStream, frame: Frame): void {
    const { flowControl, streams } = this.parts;
    if (flowControl.pass(stream.down, frame)) {
      if (stream.serverEnded) streams.delivered(stream.down);
      return;
    }
    const content = frame.content();
    this.flow.queued(frame.length);
    flowControl.data(stream.down, content, frame.length, stream.serverEnded);
  }

  /**
   * Takes the window of DATA. What waits here is bounded by the windows of streams, so the backend has to respect them.
   * @throws ConnectionError when the backend exceeds a stream's window (RFC 9113 6.9.1)
   */
  #charge(stream: BackendStream, size: number): void {
    if (stream.kind !== 'pass') stream.amendment.allowance -= size;
    const left = stream.kind === 'pass' ? windowOf(stream) - size : stream.amendment.allowance;
    if (left < 0 && size > 0)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window allows");
  }

  /**
   * Lets the backend send more of a long response than the client's window of the stream allows: first the rest of the
   * first message, once its length is known, so that the backend does not stop in the middle; then the available
   * read-ahead if more messages follow.
   */
  #readAhead(stream: BackendStream, frame: Frame): void {
    if (frame.length === 0) return;
    stream.expected = (stream.expected ?? messageSize(frame.content())) - frame.length;
    const left = stream.kind === 'pass' ? windowOf(stream) : stream.amendment.allowance;
    if (stream.expected >= 0 ? left > stream.expected : left >= READ_AHEAD_BELOW) return;
    const needed = stream.expected >= 0 ? stream.expected - left + SPARE : Infinity;
    const bytes = this.flow.reserve(stream.reserved, needed);
    if (bytes === 0) return;
    stream.reserved += bytes;
    if (stream.kind !== 'pass') {
      this.grantStream(stream);
      return;
    }
    stream.ahead += bytes;
    this.parts.toBackend.push(windowUpdate(stream.id, bytes));
  }

  #headers(headers: HeaderBlock): void {
    const parts = this.parts;
    const stream = this.#stream(headers);
    if (stream === undefined) return;
    if (headers.endStream) serverEnded(stream);
    if (headers.endStream && (parts.options.observer.wantsStatus || stream.kind === 'amend'))
      stream.status = statusOf(headers.block);
    if (headers.endStream) this.#responseEnds(stream);
    if (stream.kind === 'amend' && !headers.endStream) {
      if (parts.amender.head(stream, headers.buffer.subarray(headers.start, headers.end))) return;
    }
    stream.answered = true;
    parts.flowControl.frames(stream.down, headers.buffer, headers.start, headers.end, headers.endStream);
  }

  #reset(frame: Frame): void {
    const stream = this.#stream(frame);
    if (stream !== undefined) {
      this.#responseEnds(stream);
      this.parts.streams.resetByServer(stream, frame);
      return;
    }
    // After its last frame the backend may still ask the client to stop sending (RFC 9113 8.1).
    const ended = this.parts.streams.get(frame.streamId);
    if (ended !== undefined && !ended.reset) this.parts.streams.resetByServer(ended, frame);
  }

  #responseEnds(stream: BackendStream): void {
    if (stream.kind === 'amend') this.parts.amender.responseEnds(stream);
    if (stream.kind === 'amend-each') this.parts.messageAmender.responseEnds(stream);
  }

  #settings(frame: Frame): void {
    const parts = this.parts;
    this.#settingsMeter.count();
    const settings = readSettings(frame);
    this.#unacknowledged.push(pendingSettings(settings));
    refuseTooMany(this.#unacknowledged, parts.options.settingsLimit);
    // Never lowered: until the client acknowledges a smaller size, it may send longer frames.
    parts.client.reader.maxFrameSize = Math.max(parts.client.reader.maxFrameSize, settings.maxFrameSize ?? 0);
    parts.toClient.push(settingsForClient(settings, parts.options.streamLimit, !this.#settingsReceived));
    this.#settingsReceived = true;
    const before = this.initialWindow;
    this.initialWindow = settings.initialWindow ?? before;
    if (this.initialWindow < before) parts.streams.restoreLocalWindows(before - this.initialWindow);
    parts.opened();
  }

  #goaway(frame: Frame): void {
    this.#goaways.count();
    const parts = this.parts;
    const last = frame.buffer.readUInt32BE(frame.payload) & LARGEST_STREAM;
    const code = frame.buffer.readUInt32BE(frame.payload + 4);
    this.#lastStreamId = Math.min(this.#lastStreamId, last);
    const highestLocal = parts.streams.backendStopsAfter(this.#lastStreamId);
    const announced = parts.lifecycle.announceable(Math.max(this.#lastStreamId, highestLocal));
    parts.toClient.push(goaway(announced, code, frame.buffer.subarray(frame.payload + 8, frame.end)));
    parts.lifecycle.drain(announced, 'backend');
  }
}
