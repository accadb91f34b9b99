import { Code, messageOf, steadyNow } from '../../core/index.ts';
import {
  ConnectionError,
  checkFrame,
  DEFAULT_WINDOW,
  ErrorCode,
  FLOOD_LIMIT,
  Flag,
  FloodMeter,
  type Frame,
  FrameReader,
  FrameType,
  goaway,
  HeaderAssembly,
  type HeaderBlock,
  LARGEST_STREAM,
  NO_TABLE_NO_PUSH,
  PREFACE,
  pingAck,
  readSettings,
  rstStream,
  Setting,
  settingsAck,
  settingsFrame,
  windowUpdate,
} from '../../http2/index.ts';
import { LOST, type Outcome, REFUSED } from './outcome.ts';
import { HEADER_LIST_LIMIT, HeaderBlocks, type ResponseMemory } from './response.ts';
import { Sender } from './sender.ts';
import { ServerSocket, type Writer } from './server-socket.ts';
import { type Call, type Runner, STREAM_WINDOW, Stream } from './stream.ts';

/** Time for a server to send SETTINGS, in ms, as in other gRPC clients (connection-backoff.md of grpc). */
export const HANDSHAKE_MS = 20_000;
/** DATA frames below this size, in bytes, are metered, unless they are the last of their stream. */
const SMALL_FRAME = 64;

export interface ConnectionEvents {
  /** Calls can begin: the server has sent its SETTINGS. */
  ready(connection: Connection): void;
  /** Capacity may be available for another call: try to begin waiting calls. */
  available(): void;
  /** No further call can begin. Those that run continue. */
  leaving(connection: Connection): void;
  /** The server has not processed this call, which can be sent again. */
  unprocessed(call: Call): void;
  /** The connection is over, and so are its calls. */
  closed(connection: Connection, reason: string): void;
}

/** Limits that all connections share. */
export interface ConnectionLimits {
  readonly memory: ResponseMemory;
  /** The longest message of a response, in bytes. */
  readonly longestMessage: number;
  /** The id of the last stream of a connection, after which no ids are left. Default: {@link LARGEST_STREAM}. */
  readonly lastStream?: number;
}

/** One HTTP/2 connection to a gRPC server, as its client (RFC 9113). */
export class Connection implements Runner {
  readonly #socket: ServerSocket;
  readonly #writer: Writer;
  readonly #sender: Sender;
  readonly #reader = new FrameReader((frame) => this.#frame(frame));
  readonly #assembly = new HeaderAssembly(HEADER_LIST_LIMIT);
  readonly #blocks = new HeaderBlocks();
  readonly #meter = new FloodMeter('small or control', FLOOD_LIMIT, steadyNow);
  readonly #streams = new Map<number, Stream>();
  readonly #handshake: NodeJS.Timeout;
  #state: 'greeting' | 'open' | 'leaving' | 'closed' = 'greeting';
  #nextId = 1;
  #receiveWindow = CONNECTION_WINDOW;
  #maxStreams = Infinity;
  /** Whether new calls had the first turn when the writer was last empty. */
  #isTurnOfNew = false;
  /** The last stream that the server processes, once it leaves. */
  #lastId = LARGEST_STREAM;

  /** Connects to a unix socket. */
  constructor(
    path: string,
    private readonly limits: ConnectionLimits,
    private readonly events: ConnectionEvents,
  ) {
    this.#socket = new ServerSocket(path, {
      data: (bytes) => this.#data(bytes),
      drained: (pausedMs) => this.#drained(pausedMs),
      lost: (error) => this.#lost(error),
    });
    this.#writer = this.#socket.writer;
    this.#sender = new Sender(this.#writer);
    this.#writer.write(HELLO);
    const late = (): void => this.#close(LOST, `no SETTINGS of the server within ${HANDSHAKE_MS} ms`);
    this.#handshake = setTimeout(late, HANDSHAKE_MS).unref();
  }

  /** Whether a call can begin now. */
  get isAvailable(): boolean {
    return this.#state === 'open' && this.#streams.size < this.#maxStreams && !this.#writer.isFull;
  }

  /** Begins a call. Only while {@link isAvailable}. */
  start(call: Call): void {
    const { memory, longestMessage, lastStream = LARGEST_STREAM } = this.limits;
    const stream = new Stream(this.#nextId, call, this.#sender.initialWindow, memory, longestMessage);
    this.#nextId += 2;
    this.#streams.set(stream.id, stream);
    call.runner = this;
    call.streamId = stream.id;
    this.#sender.begin(stream);
    if (this.#nextId > lastStream) this.leave();
  }

  cancel(call: Call): void {
    const stream = this.#streams.get(call.streamId);
    if (stream === undefined) return;
    this.#writer.write(rstStream(stream.id, ErrorCode.CANCEL));
    this.#remove(stream);
    this.#ended();
  }

  /** Begins no further call, and closes the connection when those that run have ended. */
  leave(): void {
    if (this.#state === 'greeting') this.#close(LOST, 'closed by the client');
    if (this.#state !== 'open') return;
    this.#state = 'leaving';
    this.events.leaving(this);
    this.#ended();
  }

  /** Closes the connection at once. Its calls are lost. */
  destroy(): void {
    this.#close(LOST, 'closed by the client');
  }

  #data(bytes: Buffer): void {
    try {
      this.#reader.push(bytes);
      this.#reader.recycle();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Handles any error, including errors of the handling itself: it ends this connection instead of the process. */
  #fail(error: unknown): void {
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    const reason = messageOf(error);
    this.#writer.write(goaway(0, code, Buffer.from(reason)));
    this.#close({ code: Code.UNAVAILABLE, details: `error reading from server: ${reason}` }, reason);
  }

  /** New calls and requests being sent fill the writer in turn, so that neither waits for all of the other. */
  #drained(pausedMs: number): void {
    this.#meter.credit(pausedMs);
    this.#isTurnOfNew = !this.#isTurnOfNew;
    if (this.#isTurnOfNew) this.events.available();
    this.#sender.pump();
    if (!this.#isTurnOfNew) this.events.available();
  }

  #lost(error: Error | undefined): void {
    this.#close(LOST, error?.message ?? 'the server has closed the connection');
  }

  /** Closes the connection. @param outcome of the running calls */
  #close(outcome: Outcome, reason: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    clearTimeout(this.#handshake);
    this.#socket.end();
    for (const stream of this.#streams.values()) {
      this.#remove(stream);
      stream.call.ended(outcome, undefined);
    }
    this.events.closed(this, reason);
  }

  #frame(frame: Frame): void {
    if (this.#state === 'closed') return;
    checkFrame(frame);
    if (this.#state === 'greeting' && (frame.type !== FrameType.SETTINGS || frame.has(Flag.ACK)))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the first frame is not SETTINGS');
    const block = this.#assembly.take(frame);
    if (frame.type === FrameType.DATA) {
      this.#dataFrame(frame);
      return;
    }
    this.#meter.count();
    if (block === undefined) this.#controlFrame(frame);
    else this.#headerBlock(block);
  }

  #controlFrame(frame: Frame): void {
    const { buffer, payload, end, streamId } = frame;
    switch (frame.type) {
      case FrameType.SETTINGS:
        if (!frame.has(Flag.ACK)) this.#settings(frame);
        return;
      case FrameType.PING:
        if (!frame.has(Flag.ACK)) this.#writer.defer(pingAck(buffer.subarray(payload, end)));
        return;
      case FrameType.RST_STREAM:
        this.#reset(streamId, buffer.readUInt32BE(payload));
        return;
      case FrameType.GOAWAY:
        this.#goaway(buffer.readUInt32BE(payload) & LARGEST_STREAM);
        return;
      case FrameType.WINDOW_UPDATE:
        this.#windowUpdate(streamId, buffer.readUInt32BE(payload) & LARGEST_STREAM);
        return;
      default:
        return;
    }
  }

  #dataFrame(frame: Frame): void {
    const { length, streamId } = frame;
    const isLast = frame.has(Flag.END_STREAM);
    const content = frame.content();
    if (content.length < SMALL_FRAME && !isLast) this.#meter.count();
    this.#receiveWindow = this.#received(0, this.#receiveWindow - length, CONNECTION_WINDOW);
    const stream = this.#streamOf(streamId);
    if (stream === undefined) return;
    const outcome = stream.data(content) ?? (isLast ? stream.endedWithoutTrailers() : undefined);
    if (outcome !== undefined) this.#finish(stream, outcome, isLast);
    else stream.receiveWindow = this.#received(streamId, stream.receiveWindow - length, STREAM_WINDOW);
  }

  /**
   * Returns the new size of a window, which is reset when half of it is used. It is never used up: everything is read
   * at once, and a frame is shorter than half a window.
   */
  #received(streamId: number, left: number, whole: number): number {
    if (left > whole / 2) return left;
    this.#writer.write(windowUpdate(streamId, whole - left));
    return whole;
  }

  #headerBlock({ streamId, block, endStream }: HeaderBlock): void {
    const stream = this.#streamOf(streamId);
    const outcome = stream?.headers(this.#blocks.decode(block), endStream);
    if (stream !== undefined && outcome !== undefined) this.#finish(stream, outcome, endStream);
  }

  #settings(frame: Frame): void {
    const { all, initialWindow, maxFrameSize } = readSettings(frame);
    for (const [id, value] of all) {
      if (id === Setting.MAX_CONCURRENT_STREAMS) this.#maxStreams = value;
      // A server may not set it (RFC 9113 6.5.2).
      if (id === Setting.ENABLE_PUSH && value !== 0)
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `SETTINGS_ENABLE_PUSH ${value}`);
    }
    // Before frames that rely on the new values (RFC 9113 6.5.3).
    this.#writer.write(settingsAck());
    this.#sender.apply(initialWindow, maxFrameSize, this.#streams.values());
    if (this.#state !== 'greeting') {
      this.events.available();
      return;
    }
    this.#state = 'open';
    clearTimeout(this.#handshake);
    this.events.ready(this);
  }

  #reset(streamId: number, errorCode: number): void {
    const stream = this.#streamOf(streamId);
    if (stream === undefined) return;
    this.#remove(stream);
    this.#meter.reset();
    if (errorCode === ErrorCode.REFUSED_STREAM && !stream.hasResponse) this.#unprocessed(stream);
    else stream.call.ended(outcomeOf(stream, errorCode), undefined);
    this.#ended();
  }

  /** @param lastId the last stream that the server processes (RFC 9113 6.8) */
  #goaway(lastId: number): void {
    this.#lastId = Math.min(this.#lastId, lastId);
    if (this.#state === 'open') {
      this.#state = 'leaving';
      this.events.leaving(this);
    }
    for (const stream of this.#streams.values()) {
      if (stream.id <= this.#lastId) continue;
      this.#remove(stream);
      // A response proves that the server has processed the call, contrary to the id in GOAWAY.
      if (stream.hasResponse) stream.call.ended({ ...REFUSED, isUnsent: false }, undefined);
      else this.#unprocessed(stream);
    }
    this.#ended();
  }

  #windowUpdate(streamId: number, increment: number): void {
    if (increment === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
    const stream = streamId === 0 ? undefined : this.#streamOf(streamId);
    if (streamId === 0) this.#sender.addConnectionWindow(increment);
    else if (stream !== undefined) this.#sender.addStreamWindow(stream, increment);
  }

  /** Returns the stream if its call runs. @throws ConnectionError for a stream that was not opened */
  #streamOf(id: number): Stream | undefined {
    if (id % 2 === 0 || id >= this.#nextId)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'frame on an idle stream');
    return this.#streams.get(id);
  }

  /** @param isLast whether the server has ended the stream */
  #finish(stream: Stream, outcome: Outcome, isLast: boolean): void {
    if (!isLast || !this.#sender.hasSent(stream)) this.#writer.write(rstStream(stream.id, ErrorCode.CANCEL));
    const { message } = stream;
    this.#remove(stream);
    this.#meter.reset();
    stream.call.ended(outcome, message);
    this.#ended();
  }

  #unprocessed({ call }: Stream): void {
    if (call.isRetried) {
      call.ended(REFUSED, undefined);
    } else {
      call.isRetried = true;
      this.events.unprocessed(call);
    }
  }

  #remove(stream: Stream): void {
    this.#streams.delete(stream.id);
    this.#sender.stop(stream);
    stream.close();
    stream.call.runner = undefined;
  }

  /** Reports that a call may begin, or closes a leaving connection once its last call has ended. */
  #ended(): void {
    if (this.#state === 'open') this.events.available();
    if (this.#state === 'leaving' && this.#streams.size === 0)
      this.#close(LOST, 'the server has closed the connection with GOAWAY');
  }
}

/**
 * Returns the outcome of a call after the server reset its stream. At a call's deadline, grpc-go resets the stream with
 * CANCEL (internal/transport/http2_server.go). Such a call ends with DEADLINE_EXCEEDED, as in grpc-go's client and as
 * with the timer of this client.
 */
function outcomeOf(stream: Stream, errorCode: number): Outcome {
  const now = steadyNow();
  const isLate = errorCode === ErrorCode.CANCEL && stream.call.deadline <= now;
  return isLate ? stream.call.expired(now) : stream.reset(errorCode);
}

/** Bytes that the server may send on all streams ahead of what was read. */
const CONNECTION_WINDOW = 2 * STREAM_WINDOW;

/** The first bytes of the client: preface, SETTINGS, and the window of the connection, which SETTINGS cannot set. */
const HELLO = Buffer.concat([
  PREFACE,
  settingsFrame([
    ...NO_TABLE_NO_PUSH,
    [Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW],
    [Setting.MAX_HEADER_LIST_SIZE, HEADER_LIST_LIMIT],
  ]),
  windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW),
]);
