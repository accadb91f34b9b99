import { ConnectionError, ErrorCode } from './errors.ts';
import { DEFAULT_MAX_FRAME_SIZE, Flag, FRAME_HEADER_SIZE, Frame, FrameType } from './frame.ts';

/** Size in bytes of the reused buffers for split frames; fits one default-size frame. */
const BUFFER_SIZE = FRAME_HEADER_SIZE + DEFAULT_MAX_FRAME_SIZE;

/** The cost of a HEADERS frame of a client, if another frame costs 1: it opens a call. */
export const HEADERS_COST = 16;

/** Maximum total cost of the frames of a chunk per turn, and the cost of a HEADERS frame. Other frames cost 1. */
export interface TurnCosts {
  readonly turn: number;
  readonly headers: number;
}

/**
 * Splits a byte stream into frames. A frame that one chunk contains completely is handed out in place; a frame that is
 * split across chunks is copied once. The bytes of frames that were handed out are valid until {@link recycle}.
 */
export class FrameReader {
  /** The longest payload that was announced to the peer: a longer frame is an error (RFC 9113 4.2). */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  readonly #frame = new Frame();
  /**
   * An incomplete frame, of which the first `#filled` bytes are set. It has header size until its header is complete.
   */
  #partial: Buffer | undefined;
  #filled = 0;
  /** Memory for split frames. */
  readonly #memory = new ReusedMemory(BUFFER_SIZE);
  #buffer: Buffer | undefined;
  #stopped = false;
  #paused = false;
  #rest: Buffer[] = [];

  /**
   * @param costs frames beyond them wait for {@link resume}, so that a chunk of many small frames does not block the
   * event loop
   */
  constructor(
    private readonly handle: (frame: Frame) => void,
    private readonly costs: TurnCosts = { turn: Infinity, headers: 1 },
  ) {}

  /** Reads a chunk. @throws ConnectionError when a frame is too long, and errors of the handler */
  push(chunk: Buffer): void {
    if (this.#stopped) this.#rest.push(Buffer.from(chunk));
    else this.#read(chunk, (rest) => Buffer.from(rest));
  }

  /** Reuses the memory of the frames handed out so far. Their bytes become invalid. */
  recycle(): void {
    this.#memory.giveBack(this.#buffer);
  }

  /** Leaves the frames that follow for {@link resume}. May be called while a frame is handled. */
  stop(): void {
    this.#stopped = true;
  }

  /** Continues after {@link stop} or a pause with the bytes that have arrived since. */
  resume(): void {
    this.#stopped = false;
    this.#paused = false;
    const rest = this.#rest;
    this.#rest = [];
    for (const chunk of rest)
      if (this.#isStopped()) this.#rest.push(chunk);
      else this.#read(chunk, (left) => left);
  }

  /** Whether frames wait, be it after {@link stop} or a pause. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Whether frames wait because the previous ones used up the cost of one turn of the event loop. */
  get paused(): boolean {
    return this.#paused;
  }

  /** Bytes of an incomplete frame, or left by {@link stop}. */
  get pending(): number {
    return this.#filled + this.#rest.reduce((sum, chunk) => sum + chunk.length, 0);
  }

  /** A method, so that TypeScript does not assume that a handler left the value unchanged. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  /** @param keep returns bytes that stay valid while they wait */
  #read(chunk: Buffer, keep: (rest: Buffer) => Buffer): void {
    let at = 0;
    while (this.#partial !== undefined && at < chunk.length) at = this.#fill(this.#partial, chunk, at);
    at = this.#completeFrames(chunk, at);
    if (at === chunk.length) return;
    if (this.#isStopped()) this.#rest.push(keep(chunk.subarray(at)));
    else this.#startPartial(chunk, at);
  }

  #completeFrames(chunk: Buffer, from: number): number {
    let at = from;
    const { turn, headers } = this.costs;
    let left = turn;
    while (!this.#isStopped() && chunk.length - at >= FRAME_HEADER_SIZE) {
      const end = at + this.#sizeOf(chunk, at);
      if (end > chunk.length) break;
      if (left <= 0) {
        this.#paused = true;
        this.#stopped = true;
        break;
      }
      this.#emit(chunk, at, end);
      left -= this.#frame.type === FrameType.HEADERS ? headers : 1;
      at = end;
    }
    return at;
  }

  /** Returns the size of the frame whose header is at `at`, header included. */
  #sizeOf(bytes: Buffer, at: number): number {
    const length = bytes.readUInt32BE(at) >>> 8;
    if (length > this.maxFrameSize)
      throw new ConnectionError(
        ErrorCode.FRAME_SIZE_ERROR,
        `frame of ${length} bytes exceeds the maximum of ${this.maxFrameSize}`,
      );
    return FRAME_HEADER_SIZE + length;
  }

  #startPartial(chunk: Buffer, at: number): void {
    const rest = chunk.length - at;
    const size = rest < FRAME_HEADER_SIZE ? FRAME_HEADER_SIZE : this.#sizeOf(chunk, at);
    // Allocates the exact size at once: a peer that announces a long frame and sends nothing occupies at most
    // maxFrameSize.
    const partial = this.#allocate(size);
    chunk.copy(partial, 0, at);
    this.#partial = partial;
    this.#filled = rest;
  }

  /** Reuses buffers: one new large buffer for each burst would be most of the cost of a long list. */
  #allocate(size: number): Buffer {
    if (size <= FRAME_HEADER_SIZE || size > BUFFER_SIZE) return Buffer.allocUnsafe(size);
    this.#buffer = this.#memory.take();
    return this.#buffer.subarray(0, size);
  }

  /**
   * Completes the partial frame from the chunk, and hands it out when it is complete. Returns the position after the
   * bytes read.
   */
  #fill(partial: Buffer, chunk: Buffer, at: number): number {
    const copied = chunk.copy(partial, this.#filled, at);
    this.#filled += copied;
    if (this.#filled < partial.length) return at + copied;
    const size = partial.length === FRAME_HEADER_SIZE ? this.#sizeOf(partial, 0) : partial.length;
    if (size > partial.length) {
      const larger = this.#allocate(size);
      partial.copy(larger);
      this.#partial = larger;
      return at + copied;
    }
    this.#partial = undefined;
    this.#filled = 0;
    this.#buffer = undefined;
    this.#emit(partial, 0, partial.length);
    return at + copied;
  }

  #emit(bytes: Buffer, start: number, end: number): void {
    const frame = this.#frame;
    frame.buffer = bytes;
    frame.start = start;
    frame.payload = start + FRAME_HEADER_SIZE;
    frame.end = end;
    frame.type = bytes.readUInt8(start + 3);
    frame.flags = bytes.readUInt8(start + 4);
    frame.streamId = bytes.readUInt32BE(start + 5) & 0x7fffffff;
    this.handle(frame);
  }
}

/**
 * Limit of frames for one header block. A block of the largest accepted size needs 64 frames of the smallest maximum
 * size.
 */
const MAX_FRAMES = 1024;

const NOTHING = Buffer.alloc(0);

/** A complete header block and the frames that carried it. The assembly reuses objects: do not store it. */
export class HeaderBlock {
  streamId = 0;
  endStream = false;
  /** Whether one frame without padding and priority carried it. */
  bare = false;
  /** The received frames, from `start` to `end`. */
  buffer: Buffer = NOTHING;
  start = 0;
  end = 0;
  #block: Buffer | undefined;

  /** The HPACK-encoded fields, without padding and priority. Made when asked for: most of a server are not read. */
  get block(): Buffer {
    this.#block ??= this.buffer.subarray(this.start + FRAME_HEADER_SIZE, this.end);
    return this.#block;
  }

  /** @param block undefined if it is all that the frame has */
  set(streamId: number, endStream: boolean, frames: Pick<Frame, 'buffer' | 'start' | 'end'>, block?: Buffer): this {
    this.streamId = streamId;
    this.endStream = endStream;
    this.bare = block === undefined;
    this.buffer = frames.buffer;
    this.start = frames.start;
    this.end = frames.end;
    this.#block = block;
    return this;
  }
}

/**
 * Joins HEADERS and the CONTINUATION frames after it (RFC 9113 6.10). Only complete blocks are forwarded, so no other
 * frame gets between their frames, and a peer that disconnects leaves no partial block behind.
 */
export class HeaderAssembly {
  #parts: { block: Buffer; frame: Buffer }[] = [];
  #streamId = 0;
  #endStream = false;
  #size = 0;
  readonly #complete = new HeaderBlock();

  /** @param limit octets of an encoded block */
  constructor(private readonly limit: number) {}

  /**
   * Takes every frame of the connection, in order. Returns the block if the frame completes one.
   * @throws ConnectionError for a frame inside another stream's header block, and for a block that is too long
   */
  take(frame: Frame): HeaderBlock | undefined {
    const isContinuation = frame.type === FrameType.CONTINUATION;
    if (this.#streamId === 0) {
      if (isContinuation) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'CONTINUATION without HEADERS');
      return frame.type === FrameType.HEADERS ? this.#begin(frame) : undefined;
    }
    if (!isContinuation || frame.streamId !== this.#streamId)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'another frame inside a header block');
    return this.#add(frame, frame.buffer.subarray(frame.payload, frame.end));
  }

  #begin(frame: Frame): HeaderBlock | undefined {
    const isBare = !frame.has(Flag.PADDED | Flag.PRIORITY);
    if (!frame.has(Flag.END_HEADERS)) {
      this.#streamId = frame.streamId;
      this.#endStream = frame.has(Flag.END_STREAM);
      return this.#add(frame, frame.content());
    }
    const block = isBare ? undefined : frame.content();
    if ((block ?? frame).length > this.limit) throw tooLarge();
    return this.#complete.set(frame.streamId, frame.has(Flag.END_STREAM), frame, block);
  }

  #add(frame: Frame, block: Buffer): HeaderBlock | undefined {
    this.#size += block.length;
    // Copies, because the rest of the block may come with another chunk.
    const copy = Buffer.from(frame.bytes());
    const from = block.byteOffset - frame.buffer.byteOffset - frame.start;
    this.#parts.push({ block: copy.subarray(from, from + block.length), frame: copy });
    if (this.#size > this.limit || this.#parts.length > MAX_FRAMES) throw tooLarge();
    if (!frame.has(Flag.END_HEADERS)) return undefined;
    const buffer = Buffer.concat(this.#parts.map((part) => part.frame));
    const whole = Buffer.concat(this.#parts.map((part) => part.block));
    const frames = { buffer, start: 0, end: buffer.length };
    // Not the reused object, which would keep up to the limit of bytes for each connection.
    const complete = new HeaderBlock().set(this.#streamId, this.#endStream, frames, whole);
    this.#parts = [];
    this.#streamId = 0;
    this.#size = 0;
    return complete;
  }
}

function tooLarge(): ConnectionError {
  return new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'header block too large');
}

/** The most buffers that are tracked for reuse. Further ones are left to the garbage collector. */
const MAX_TRACKED = 4;

/**
 * Large buffers of one size that are handed out one by one and reused all at once, when the proxy holds no bytes of
 * them any more. Allocating a buffer for each read and collecting it again was half of the cost of a list of 500
 * containers.
 */
export class ReusedMemory {
  readonly #free: Buffer[] = [];
  #inUse: Buffer[] = [];

  /** @param size of each buffer, in bytes */
  constructor(private readonly size: number) {}

  /** Returns a buffer of the full size, in use until {@link giveBack}. Its bytes are not cleared. */
  take(): Buffer {
    const memory = this.#free.pop() ?? Buffer.allocUnsafeSlow(this.size);
    // If the peer reads slowly, the oldest buffers may stay in use for long. Untracked, they live as long as needed.
    if (this.#inUse.length >= MAX_TRACKED) this.#inUse.shift();
    this.#inUse.push(memory);
    return memory;
  }

  /** Marks all buffers but `except` as free. */
  giveBack(except?: Buffer): void {
    if (this.#inUse.length === 0 || (this.#inUse.length === 1 && this.#inUse[0] === except)) return;
    for (const memory of this.#inUse) if (memory !== except) this.#free.push(memory);
    this.#inUse = except === undefined ? [] : [except];
  }
}
