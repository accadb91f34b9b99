import { MESSAGE_PREFIX_SIZE, messagePrefix, steadyNow, writeMessagePrefix } from '../../core/index.ts';
import {
  ConnectionError,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  Flag,
  FRAME_HEADER_SIZE,
  FrameType,
  headersFrames,
  LARGEST_WINDOW,
  writeFrameHeader,
} from '../../http2/index.ts';
import { metadataBlock, pathBlock, timeoutBlock } from './request-headers.ts';
import type { Writer } from './server-socket.ts';
import type { Stream } from './stream.ts';

/** A request of up to this many bytes is copied into one buffer with its header fields. */
const COPY_LIMIT = 16_384;
/** The longest frame that is sent; the server may accept longer ones: it stays in memory when its call ends. */
const LONGEST_FRAME = 65_536;

/** A dynamic table size update to 0 (RFC 7541 6.3), which begins the first header block of a connection. */
const NO_TABLE = Buffer.of(0x20);
const NOTHING = Buffer.alloc(0);

/** Sends requests, as far as the server's windows and limits allow (RFC 9113 5.2). */
export class Sender {
  #window = DEFAULT_WINDOW;
  #initialWindow = DEFAULT_WINDOW;
  #maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  #isFirst = true;
  /** Streams whose request is not sent completely. */
  readonly #unsent = new Set<Stream>();

  constructor(private readonly writer: Writer) {}

  /** The window of a new stream. */
  get initialWindow(): number {
    return this.#initialWindow;
  }

  /** Sends the header fields of a request, and as much of its message as possible. */
  begin(stream: Stream): void {
    const { call, id } = stream;
    const block = this.#block(stream);
    const { size } = call;
    const isSmall = size <= COPY_LIMIT && block.length <= COPY_LIMIT;
    if (isSmall && size <= Math.min(this.#window, stream.sendWindow)) {
      this.#sendWhole(stream, block);
      return;
    }
    this.writer.write(headersFrames(id, block, false, this.#maxFrameSize));
    this.#unsent.add(stream);
    this.pump();
  }

  /** Continues requests that waited for windows or the socket. Each sends one frame, then moves to the end. */
  pump(): void {
    // Includes streams that are added again meanwhile, until none of them can send.
    for (const stream of this.#unsent) {
      if (!this.#sendFrame(stream)) continue;
      this.#unsent.delete(stream);
      if (stream.sent < stream.call.size) this.#unsent.add(stream);
    }
  }

  /** Whether the request was sent completely. */
  hasSent(stream: Stream): boolean {
    return !this.#unsent.has(stream);
  }

  /** Sends no more of a request. */
  stop(stream: Stream): void {
    this.#unsent.delete(stream);
  }

  /** @throws ConnectionError if the window gets too large (RFC 9113 6.9.1) */
  addConnectionWindow(increment: number): void {
    this.#window = added(this.#window, increment);
    this.pump();
  }

  /** @throws ConnectionError if the window gets too large (RFC 9113 6.9.1) */
  addStreamWindow(stream: Stream, increment: number): void {
    stream.sendWindow = added(stream.sendWindow, increment);
    this.pump();
  }

  /**
   * Applies SETTINGS of the server (RFC 9113 6.9.2).
   * @throws ConnectionError if the window of a stream gets too large
   */
  apply(initialWindow: number | undefined, maxFrameSize: number | undefined, streams: Iterable<Stream>): void {
    if (maxFrameSize !== undefined) this.#maxFrameSize = maxFrameSize;
    if (initialWindow === undefined) return;
    const change = initialWindow - this.#initialWindow;
    this.#initialWindow = initialWindow;
    for (const stream of streams) stream.sendWindow = added(stream.sendWindow, change);
    this.pump();
  }

  #block({ call }: Stream): Buffer {
    const timeout = call.deadline === Infinity ? NOTHING : timeoutBlock(call.deadline - steadyNow());
    const parts = [pathBlock(call.path), timeout, metadataBlock(call.metadata)];
    if (this.#isFirst) parts.unshift(NO_TABLE);
    this.#isFirst = false;
    return Buffer.concat(parts);
  }

  /** HEADERS and DATA in one buffer. */
  #sendWhole(stream: Stream, block: Buffer): void {
    const { id, call } = stream;
    const { message, size } = call;
    const data = FRAME_HEADER_SIZE + block.length;
    const bytes = Buffer.allocUnsafe(data + FRAME_HEADER_SIZE + size);
    writeFrameHeader(bytes, 0, block.length, FrameType.HEADERS, Flag.END_HEADERS, id);
    bytes.set(block, FRAME_HEADER_SIZE);
    writeFrameHeader(bytes, data, size, FrameType.DATA, Flag.END_STREAM, id);
    writeMessagePrefix(bytes, data + FRAME_HEADER_SIZE, message.length);
    bytes.set(message, data + FRAME_HEADER_SIZE + MESSAGE_PREFIX_SIZE);
    this.#took(stream, size);
    this.writer.write(bytes);
  }

  /** Sends one frame of a request without copying the message. Returns whether it could. */
  #sendFrame(stream: Stream): boolean {
    const { id, call, sent } = stream;
    const { message, size } = call;
    const length = Math.min(size - sent, this.#window, stream.sendWindow, this.#maxFrameSize, LONGEST_FRAME);
    if (length <= 0 || this.writer.isFull) return false;
    const end = sent + length;
    const prefix = Math.max(0, Math.min(MESSAGE_PREFIX_SIZE, end) - sent);
    const head = Buffer.allocUnsafe(FRAME_HEADER_SIZE + prefix);
    writeFrameHeader(head, 0, length, FrameType.DATA, end === size ? Flag.END_STREAM : 0, id);
    if (prefix > 0) messagePrefix(message.length).copy(head, FRAME_HEADER_SIZE, sent);
    this.writer.write(head);
    if (prefix < length)
      this.writer.write(message.subarray(Math.max(0, sent - MESSAGE_PREFIX_SIZE), end - MESSAGE_PREFIX_SIZE));
    this.#took(stream, length);
    return true;
  }

  #took(stream: Stream, bytes: number): void {
    this.#window -= bytes;
    stream.sendWindow -= bytes;
    stream.sent += bytes;
  }
}

function added(window: number, change: number): number {
  if (window + change <= LARGEST_WINDOW) return window + change;
  throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'window above the largest one');
}
