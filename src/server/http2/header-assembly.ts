import { ConnectionError, ErrorCode } from './errors.ts';
import type { Frame } from './frame.ts';
import { Flag, FrameType } from './frame.ts';

/**
 * Limit of frames for one header block. A block of the largest accepted size needs 64 frames of the smallest maximum
 * size.
 */
const MAX_FRAMES = 1024;

/** A complete header block and the frames that carried it. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** Whether one frame without padding and priority carried it. */
  readonly bare: boolean;
  /** The HPACK-encoded fields, without padding and priority. */
  readonly block: Buffer;
  /** The received frames, from `start` to `end`. */
  readonly buffer: Buffer;
  readonly start: number;
  readonly end: number;
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
  readonly #limit: number;

  /** @param limit octets of an encoded block */
  constructor(limit: number) {
    this.#limit = limit;
  }

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
    // Copies, because the rest of the block may come with another chunk.
    const copy = Buffer.from(frame.bytes());
    const from = block.byteOffset - frame.buffer.byteOffset - frame.start;
    this.#parts.push({ block: copy.subarray(from, from + block.length), frame: copy });
    if (this.#size > this.#limit || this.#parts.length > MAX_FRAMES) throw tooLarge();
    if (!frame.has(Flag.END_HEADERS)) return undefined;
    const buffer = Buffer.concat(this.#parts.map((part) => part.frame));
    const complete = {
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
    return complete;
  }
}

function tooLarge(): ConnectionError {
  return new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'header block too large');
}
