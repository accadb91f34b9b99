import { ConnectionError, ErrorCode } from './errors.ts';
import { DEFAULT_MAX_FRAME_SIZE, FRAME_HEADER_SIZE, Frame } from './frame.ts';
import { LentMemory } from './memory.ts';

/** A frame of the usual size, which may straddle chunks, fits in one. */
const SLAB_SIZE = FRAME_HEADER_SIZE + DEFAULT_MAX_FRAME_SIZE;

/**
 * Splits a byte stream into frames, whatever the chunks it comes in. A frame that lies whole in a chunk is handed out in
 * place; only one that straddles chunks is copied, once. What is handed out may be used until {@link recycle}.
 */
export class FrameReader {
  /** Payload bytes that this side told its peer it takes: a longer frame is an error (RFC 9113 section 4.2). */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  readonly #frame = new Frame();
  readonly #handle: (frame: Frame) => void;
  /** A frame that is not whole yet: its first `#filled` bytes. Before the header is whole, of header size. */
  #partial: Buffer | undefined;
  #filled = 0;
  /** Memory for straddling frames. */
  readonly #slabs = new LentMemory(SLAB_SIZE);
  #slab: Buffer | undefined;
  #stopped = false;
  #rest: Buffer[] = [];

  constructor(handle: (frame: Frame) => void) {
    this.#handle = handle;
  }

  /** @throws ConnectionError when a frame is too long, and whatever the handler throws */
  push(chunk: Buffer): void {
    if (this.#stopped) {
      this.#rest.push(Buffer.from(chunk));
      return;
    }
    let at = 0;
    while (this.#partial !== undefined && at < chunk.length) at = this.#fill(this.#partial, chunk, at);
    at = this.#whole(chunk, at);
    if (at === chunk.length) return;
    if (this.#isStopped()) this.#rest.push(Buffer.from(chunk.subarray(at)));
    else this.#keep(chunk, at);
  }

  /** Nobody looks at the bytes of the frames handed out so far any more. */
  recycle(): void {
    this.#slabs.giveBack(this.#slab);
  }

  /** For whoever handles a frame: leaves what follows for {@link resume}. */
  stop(): void {
    this.#stopped = true;
  }

  /** Goes on after {@link stop}, with what has come meanwhile. */
  resume(): void {
    this.#stopped = false;
    const rest = this.#rest;
    this.#rest = [];
    for (const chunk of rest) this.push(chunk);
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Bytes of a frame that has not come whole, or that were left by {@link stop}. */
  get pending(): number {
    return this.#filled + this.#rest.reduce((sum, chunk) => sum + chunk.length, 0);
  }

  /** A call, since a handler may have changed it. */
  #isStopped(): boolean {
    return this.#stopped;
  }

  #whole(chunk: Buffer, from: number): number {
    let at = from;
    while (!this.#isStopped() && chunk.length - at >= FRAME_HEADER_SIZE) {
      const end = at + this.#sizeOf(chunk, at);
      if (end > chunk.length) break;
      this.#emit(chunk, at, end);
      at = end;
    }
    return at;
  }

  /** Size of the frame whose header is at `at`, header included. */
  #sizeOf(bytes: Buffer, at: number): number {
    const length = bytes.readUInt32BE(at) >>> 8;
    if (length > this.maxFrameSize)
      throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `frame of ${length} bytes, more than ${this.maxFrameSize}`);
    return FRAME_HEADER_SIZE + length;
  }

  #keep(chunk: Buffer, at: number): void {
    const rest = chunk.length - at;
    const size = rest < FRAME_HEADER_SIZE ? FRAME_HEADER_SIZE : this.#sizeOf(chunk, at);
    // The whole size at once, and not more: a peer that announces a long frame and sends nothing holds maxFrameSize.
    const partial = this.#allocate(size);
    chunk.copy(partial, 0, at);
    this.#partial = partial;
    this.#filled = rest;
  }

  /** Large buffers come from the garbage collector dear: one for each burst would be most of what a long list costs. */
  #allocate(size: number): Buffer {
    if (size <= FRAME_HEADER_SIZE || size > SLAB_SIZE) return Buffer.allocUnsafe(size);
    this.#slab = this.#slabs.take();
    return this.#slab.subarray(0, size);
  }

  /** Copies what the partial frame still needs, and hands it out when it is whole. Returns how far it read. */
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
    this.#slab = undefined;
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
    this.#handle(frame);
  }
}
