import { BackendFlow } from './backend-flow.ts';
import { statusOf } from './grpc.ts';
import { type AmendStream, type PassStream, serverEnded } from './stream.ts';
import type { Switch } from './connection.ts';
import {
  ConnectionError,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  Flag,
  type Frame,
  FrameReader,
  FrameType,
  HeaderAssembly,
  type HeaderBlock,
  LARGEST_WINDOW,
  type Settings,
  checkFrame,
  goaway,
  readSettings,
  settingsForClient,
  windowUpdate,
} from '../http2/index.ts';

/** Bytes of a connection window that nobody can be waiting for: at least eight times as many are there from the start. */
const SMALL_INCREMENT = DEFAULT_WINDOW >> 3;

type BackendStream = PassStream | AmendStream;

/** What the backend sends: passed to the client as it is, but for the responses that are amended. */
export class BackendSide {
  readonly reader = new FrameReader((frame) => this.#frame(frame));
  readonly flow: BackendFlow;
  /** The backend's SETTINGS_MAX_FRAME_SIZE, in force once the client's acknowledgement is on its way to it. */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  /** The backend's SETTINGS_INITIAL_WINDOW_SIZE, as last told to the client, and the largest ever. */
  initialWindow = DEFAULT_WINDOW;
  largestInitialWindow = DEFAULT_WINDOW;
  /** The connection is closed: nothing can be sent there. */
  gone = false;
  #greeted = false;
  /** SETTINGS of the backend that the client has not acknowledged, oldest first. */
  readonly #unacknowledged: Settings[] = [];
  /** The last stream that the backend will serve, by its GOAWAY. */
  #lastStreamId = Infinity;
  readonly #switch: Switch;
  readonly #assembly: HeaderAssembly;

  constructor(core: Switch) {
    this.#switch = core;
    this.#assembly = new HeaderAssembly(core.options.headerListLimit);
    this.flow = new BackendFlow(core.gate, (lane) => core.streams.delivered(lane));
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    this.reader.push(chunk);
  }

  /** Whether the backend takes a stream of this number. */
  takes(streamId: number): boolean {
    return streamId <= this.#lastStreamId;
  }

  /** The client's acknowledgement of the backend's SETTINGS. */
  acknowledged(frame: Frame): void {
    const settings = this.#unacknowledged.shift();
    // One too many would end the backend's connection, and with it calls that have done nothing wrong.
    if (settings === undefined) return;
    this.maxFrameSize = settings.maxFrameSize ?? this.maxFrameSize;
    this.#switch.toBackend.pass(frame.buffer, frame.start, frame.end);
  }

  /** Gives the backend what the client's connection window has room for. */
  settle(): void {
    const increment = this.flow.grant();
    if (increment > 0) this.#switch.toBackend.push(windowUpdate(0, increment));
  }

  /** Gives the backend what the client's window of an amended stream has room for. */
  grantStream(stream: AmendStream): void {
    const { amendment, down } = stream;
    const takes = Math.min(down.window + this.#switch.options.readAhead, LARGEST_WINDOW);
    const increment = takes - down.charged - amendment.charged - amendment.allowance;
    if (stream.serverEnded || increment <= 0) return;
    amendment.allowance += increment;
    this.#switch.toBackend.push(windowUpdate(stream.id, increment));
  }

  #frame(frame: Frame): void {
    checkFrame(frame);
    if (!this.#greeted && (frame.type !== FrameType.SETTINGS || frame.has(Flag.ACK)))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the first frame is not SETTINGS');
    const block = this.#assembly.take(frame);
    const core = this.#switch;
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
        if (!frame.has(Flag.ACK)) {
          this.#settings(frame);
          return;
        }
        core.asClient(() => core.client.acknowledge());
        return;
      case FrameType.PING:
        if (frame.has(Flag.ACK)) return;
        core.acknowledgePing(core.toBackend, frame);
        core.options.observer.pingAnswered('backend');
        return;
      case FrameType.GOAWAY:
        this.#goaway(frame);
        return;
      case FrameType.WINDOW_UPDATE:
        if (frame.streamId === 0) this.#connectionWindow(frame);
        else if (this.#stream(frame) !== undefined) core.toClient.pass(frame.buffer, frame.start, frame.end);
        return;
      default:
        return;
    }
  }

  /**
   * A Go server gives back the few bytes of each request at once. The client can wait for those: a write of their own would
   * wake it in the middle of its call.
   */
  #connectionWindow(frame: Frame): void {
    const { toClient } = this.#switch;
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (increment > SMALL_INCREMENT) toClient.pass(frame.buffer, frame.start, frame.end);
    else this.#switch.sendUnhurried(toClient, Buffer.from(frame.buffer.subarray(frame.start, frame.end)));
  }

  /** The stream of a frame, or undefined when it is over. @throws ConnectionError when it never was ours to answer */
  #stream(frame: { readonly streamId: number }): BackendStream | undefined {
    const stream = this.#switch.streams.get(frame.streamId);
    if (stream !== undefined && stream.kind !== 'handle' && !stream.serverEnded) return stream;
    if (stream?.kind === 'handle' || frame.streamId % 2 === 0 || frame.streamId > this.#switch.client.lastStreamId)
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
    if (stream.kind === 'amend') {
      stream.amendment.allowance -= size;
      if (stream.amendment.state.kind !== 'passing') {
        this.#switch.amender.response(stream, frame);
        return;
      }
    }
    const { gate } = this.#switch;
    if (gate.pass(stream.down, frame)) {
      if (stream.serverEnded) this.#switch.streams.delivered(stream.down);
      return;
    }
    const content = frame.content();
    this.flow.kept(size);
    gate.data(stream.down, content, size, stream.serverEnded);
  }

  #headers(headers: HeaderBlock): void {
    const core = this.#switch;
    const stream = this.#stream(headers);
    if (stream === undefined) return;
    if (headers.endStream) serverEnded(stream);
    if (headers.endStream && (core.options.observer.wantsStatus || stream.kind === 'amend'))
      stream.status = statusOf(headers.block);
    if (headers.endStream && stream.kind === 'amend') this.#switch.amender.responseEnds(stream);
    if (stream.kind === 'amend' && !headers.endStream) {
      if (core.amender.head(stream, headers.buffer.subarray(headers.start, headers.end))) return;
    }
    stream.answered = true;
    core.gate.frames(stream.down, headers.buffer, headers.start, headers.end, headers.endStream);
  }

  #reset(frame: Frame): void {
    const stream = this.#stream(frame);
    if (stream?.kind === 'amend') this.#switch.amender.responseEnds(stream);
    if (stream !== undefined) {
      this.#switch.streams.resetByServer(stream, frame);
      return;
    }
    // After its last frame the backend may still ask the client to send no more (RFC 9113 section 8.1).
    const ended = this.#switch.streams.get(frame.streamId);
    if (ended !== undefined && !ended.reset) this.#switch.streams.resetByServer(ended, frame);
  }

  #settings(frame: Frame): void {
    const core = this.#switch;
    const settings = readSettings(frame);
    this.#unacknowledged.push(settings);
    // Only ever larger: until the client acknowledges a smaller size, it may send longer frames.
    core.client.reader.maxFrameSize = Math.max(core.client.reader.maxFrameSize, settings.maxFrameSize ?? 0);
    core.toClient.push(settingsForClient(settings));
    const before = this.initialWindow;
    this.initialWindow = settings.initialWindow ?? before;
    this.largestInitialWindow = Math.max(this.largestInitialWindow, this.initialWindow);
    if (this.initialWindow < before) core.streams.keepLocalWindows(before - this.initialWindow);
    this.#greeted = true;
    core.opened();
  }

  #goaway(frame: Frame): void {
    const core = this.#switch;
    const last = frame.buffer.readUInt32BE(frame.payload) & 0x7fffffff;
    const code = frame.buffer.readUInt32BE(frame.payload + 4);
    this.#lastStreamId = Math.min(this.#lastStreamId, last);
    const highestLocal = core.streams.backendStopsAfter(this.#lastStreamId);
    const announced = Math.max(this.#lastStreamId, highestLocal);
    core.toClient.push(goaway(announced, code, frame.buffer.subarray(frame.payload + 8, frame.end)));
    core.drain(announced, 'backend');
  }
}
