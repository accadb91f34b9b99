import { ConnectionError, ErrorCode } from './errors.ts';

/** Frame types (RFC 9113 6). Other types are ignored (RFC 9113 4.1). */
export const FrameType = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

/** Frame flags. END_STREAM and ACK are the same bit in different frame types. */
export const Flag = { END_STREAM: 0x1, ACK: 0x1, END_HEADERS: 0x4, PADDED: 0x8, PRIORITY: 0x20 } as const;

export const FRAME_HEADER_SIZE = 9;
/** Initial value of SETTINGS_MAX_FRAME_SIZE (RFC 9113 6.5.2). */
export const DEFAULT_MAX_FRAME_SIZE = 16_384;
/** Largest value of SETTINGS_MAX_FRAME_SIZE (RFC 9113 6.5.2). */
export const LARGEST_MAX_FRAME_SIZE = 16_777_215;
/** Initial connection window and initial value of SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 6.9.2). */
export const DEFAULT_WINDOW = 65_535;
/** Largest stream id: 31 bits (RFC 9113 4.1). It is odd, as the ids of clients' streams are. */
export const LARGEST_STREAM = 0x7fff_ffff;
/** Largest window (RFC 9113 6.9.1). */
export const LARGEST_WINDOW = 2 ** 31 - 1;
/** The client connection preface (RFC 9113 3.4). */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

const NOTHING = Buffer.alloc(0);

/** One frame, in place in the bytes it was read into. The reader reuses one object: do not store it. */
export class Frame {
  buffer: Buffer = NOTHING;
  /** Position of the frame's header. */
  start = 0;
  /** Position of its payload, padding and priority included. */
  payload = 0;
  end = 0;
  type = 0;
  flags = 0;
  streamId = 0;

  /** Payload length: what flow control counts for DATA (RFC 9113 6.9.1). */
  get length(): number {
    return this.end - this.payload;
  }

  has(flag: number): boolean {
    return (this.flags & flag) !== 0;
  }

  /** Returns the frame's bytes: a view, not a copy. */
  bytes(): Buffer {
    return this.buffer.subarray(this.start, this.end);
  }

  /** Returns the DATA or HEADERS content without padding and priority fields (RFC 9113 6.1, RFC 9113 6.2). */
  content(): Buffer {
    let from = this.payload;
    let to = this.end;
    if (this.has(Flag.PADDED)) {
      if (from >= to) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'padded frame without a pad length');
      to -= this.buffer.readUInt8(from);
      from += 1;
    }
    if (this.type === FrameType.HEADERS && this.has(Flag.PRIORITY)) from += 5;
    if (from > to) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'padding or priority longer than the frame');
    return this.buffer.subarray(from, to);
  }
}

/**
 * Checks the rules for a single frame that need no state: stream 0 or not, and fixed lengths (RFC 9113 6).
 * @throws ConnectionError
 */
export function checkFrame(frame: Frame): void {
  switch (frame.type) {
    case FrameType.DATA:
    case FrameType.HEADERS:
    case FrameType.CONTINUATION:
      onStream(frame);
      return;
    case FrameType.PRIORITY:
      onStream(frame);
      // RFC 9113 6.3 makes this a stream error; RFC 9113 5.4.1 allows a connection error instead. No gRPC peer sends
      // PRIORITY.
      exactly(frame, 5);
      return;
    case FrameType.RST_STREAM:
      onStream(frame);
      exactly(frame, 4);
      return;
    case FrameType.SETTINGS:
      onConnection(frame);
      if (frame.has(Flag.ACK)) {
        exactly(frame, 0);
        return;
      }
      if (frame.length % 6 !== 0)
        throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'SETTINGS length is not a multiple of 6');
      return;
    case FrameType.PUSH_PROMISE:
      // Clients may not push, and the proxy sends SETTINGS_ENABLE_PUSH 0 to servers.
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'PUSH_PROMISE is not allowed');
    case FrameType.PING:
      onConnection(frame);
      exactly(frame, 8);
      return;
    case FrameType.GOAWAY:
      onConnection(frame);
      if (frame.length < 8) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'GOAWAY is shorter than 8 bytes');
      return;
    case FrameType.WINDOW_UPDATE:
      exactly(frame, 4);
      return;
    default:
      return;
  }
}

function onStream(frame: Frame): void {
  if (frame.streamId === 0)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `frame of type ${frame.type} on stream 0`);
}

function onConnection(frame: Frame): void {
  if (frame.streamId !== 0)
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `frame of type ${frame.type} on a stream`);
}

function exactly(frame: Frame, length: number): void {
  if (frame.length === length) return;
  throw new ConnectionError(
    ErrorCode.FRAME_SIZE_ERROR,
    `frame of type ${frame.type} has ${frame.length} bytes, expected ${length}`,
  );
}

/** Writes a frame header at `at`. */
export function writeFrameHeader(
  into: Buffer,
  at: number,
  length: number,
  type: number,
  flags: number,
  streamId: number,
): void {
  into.writeUInt32BE(length * 256 + type, at);
  into.writeUInt8(flags, at + 4);
  into.writeUInt32BE(streamId, at + 5);
}

/** Returns a frame header. */
export function frameHeader(length: number, type: number, flags: number, streamId: number): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_HEADER_SIZE);
  writeFrameHeader(bytes, 0, length, type, flags, streamId);
  return bytes;
}

function frameOf(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_HEADER_SIZE + payload.length);
  writeFrameHeader(bytes, 0, payload.length, type, flags, streamId);
  bytes.set(payload, FRAME_HEADER_SIZE);
  return bytes;
}

function frameOfNumber(type: number, streamId: number, value: number): Buffer {
  const bytes = Buffer.allocUnsafe(FRAME_HEADER_SIZE + 4);
  writeFrameHeader(bytes, 0, 4, type, 0, streamId);
  bytes.writeUInt32BE(value, FRAME_HEADER_SIZE);
  return bytes;
}

/** @param increment bytes, 1 to {@link LARGEST_WINDOW} */
export function windowUpdate(streamId: number, increment: number): Buffer {
  return frameOfNumber(FrameType.WINDOW_UPDATE, streamId, increment);
}

/** Returns a RST_STREAM frame. */
export function rstStream(streamId: number, code: number): Buffer {
  return frameOfNumber(FrameType.RST_STREAM, streamId, code);
}

/** @param opaque 8 bytes that the acknowledgement repeats */
export function ping(opaque: Uint8Array): Buffer {
  return frameOf(FrameType.PING, 0, 0, opaque);
}

/** @param opaque the 8 bytes of the PING that is acknowledged */
export function pingAck(opaque: Uint8Array): Buffer {
  return frameOf(FrameType.PING, Flag.ACK, 0, opaque);
}

/** @param debug additional debug data: usually a text for people */
export function goaway(lastStreamId: number, code: number, debug: Uint8Array): Buffer {
  const payload = Buffer.allocUnsafe(8 + debug.length);
  payload.writeUInt32BE(lastStreamId, 0);
  payload.writeUInt32BE(code, 4);
  payload.set(debug, 8);
  return frameOf(FrameType.GOAWAY, 0, 0, payload);
}

/** Returns the acknowledgement of a SETTINGS frame. */
export function settingsAck(): Buffer {
  return frameHeader(0, FrameType.SETTINGS, Flag.ACK, 0);
}

/** Returns a SETTINGS frame with these (identifier, value) pairs, in order. */
export function settingsFrame(settings: readonly (readonly [id: number, value: number])[]): Buffer {
  const payload = Buffer.allocUnsafe(6 * settings.length);
  settings.forEach(([id, value], index) => {
    payload.writeUInt16BE(id, 6 * index);
    payload.writeUInt32BE(value, 6 * index + 2);
  });
  return frameOf(FrameType.SETTINGS, 0, 0, payload);
}

/**
 * Returns a header block as HEADERS, with CONTINUATION if it does not fit the receiver's maximum frame size (RFC 9113
 * 6.10).
 * @param maxFrameSize the receiver's SETTINGS_MAX_FRAME_SIZE
 */
export function headersFrames(streamId: number, block: Uint8Array, endStream: boolean, maxFrameSize: number): Buffer {
  const count = Math.max(1, Math.ceil(block.length / maxFrameSize));
  const bytes = Buffer.allocUnsafe(count * FRAME_HEADER_SIZE + block.length);
  let at = 0;
  for (let from = 0, index = 0; index < count; index += 1, from += maxFrameSize) {
    const length = Math.min(maxFrameSize, block.length - from);
    const type = index === 0 ? FrameType.HEADERS : FrameType.CONTINUATION;
    const flags = (index === 0 && endStream ? Flag.END_STREAM : 0) | (index === count - 1 ? Flag.END_HEADERS : 0);
    writeFrameHeader(bytes, at, length, type, flags, streamId);
    bytes.set(block.subarray(from, from + length), at + FRAME_HEADER_SIZE);
    at += FRAME_HEADER_SIZE + length;
  }
  return bytes;
}

/**
 * Returns a header block as HEADERS without copying it, if it fits one frame.
 * @param padded the block, preceded by {@link FRAME_HEADER_SIZE} bytes that the frame header overwrites
 */
export function headersInPlace(streamId: number, padded: Buffer, endStream: boolean, maxFrameSize: number): Buffer {
  const length = padded.length - FRAME_HEADER_SIZE;
  if (length > maxFrameSize)
    return headersFrames(streamId, padded.subarray(FRAME_HEADER_SIZE), endStream, maxFrameSize);
  const flags = Flag.END_HEADERS | (endStream ? Flag.END_STREAM : 0);
  writeFrameHeader(padded, 0, length, FrameType.HEADERS, flags, streamId);
  return padded;
}
