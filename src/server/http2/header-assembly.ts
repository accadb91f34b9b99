import { ConnectionError, ErrorCode } from './errors.ts';
import type { Frame } from './frame.ts';
import { Flag, FrameType } from './frame.ts';

/** CONTINUATION frames for one header block. A block of the largest size needs 64 of the smallest maximum size. */
const MOST_CONTINUATIONS = 1024;

/** A header block that is whole, and the frames that it came in. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** It came in one frame, without padding and priority. */
  readonly bare: boolean;
  /** Without padding and priority: what HPACK decodes. */
  readonly block: Buffer;
  /** The frames as they came, as a place in `buffer`. */
  readonly buffer: Buffer;
  readonly start: number;
  readonly end: number;
}

/**
 * Puts HEADERS and the CONTINUATION frames after it together (RFC 9113 section 6.10): a block passes whole or not at all, so that
 * nothing else gets between its frames, and a peer that goes away leaves no half of one behind.
 */
export class HeaderAssembly {
  #parts: { block: Buffer; frame: Buffer }[] = [];
  #streamId = 0;
  #endStream = false;
  #size = 0;
  readonly #limit: number;

  /** @param limit octets of an encoded block */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Looks at every frame, in order. Returns the block when the frame completes one.
   * @throws ConnectionError for frames between, and for a block that is too long
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
    const block = frame.content();
    if (!frame.has(Flag.END_HEADERS)) {
      this.#streamId = frame.streamId;
      this.#endStream = frame.has(Flag.END_STREAM);
      return this.#add(frame, block);
    }
    if (block.length > this.#limit) throw tooLarge();
    return {
      streamId: frame.streamId,
      endStream: frame.has(Flag.END_STREAM),
      bare: !frame.has(Flag.PADDED | Flag.PRIORITY),
      block,
      buffer: frame.buffer,
      start: frame.start,
      end: frame.end,
    };
  }

  #add(frame: Frame, block: Buffer): HeaderBlock | undefined {
    this.#size += block.length;
    // Copies: the rest of the block may come with another chunk.
    this.#parts.push({ block: Buffer.from(block), frame: Buffer.from(frame.bytes()) });
    if (this.#size > this.#limit || this.#parts.length > MOST_CONTINUATIONS) throw tooLarge();
    if (!frame.has(Flag.END_HEADERS)) return undefined;
    const buffer = Buffer.concat(this.#parts.map((part) => part.frame));
    const whole = {
      streamId: this.#streamId,
      endStream: this.#endStream,
      bare: false,
      block: Buffer.concat(this.#parts.map((part) => part.block)),
      buffer,
      start: 0,
      end: buffer.length,
    };
    this.#parts = [];
    this.#streamId = 0;
    this.#size = 0;
    return whole;
  }
}

function tooLarge(): ConnectionError {
  return new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'header block too large');
}
