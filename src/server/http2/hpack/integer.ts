import { ConnectionError, ErrorCode } from '../errors.ts';

/** A place in a header block, moved on by whoever reads. */
export interface Cursor {
  readonly bytes: Buffer;
  at: number;
  readonly end: number;
}

/**
 * The largest integer taken. RFC 7541 section 5.1 leaves the limit to us; nothing in a block that we accept (lengths, indices,
 * table sizes) comes near it, and four more octets hold it, so that a long run of 0x80 is refused early.
 */
const LARGEST = 2 ** 28 - 1;

/** The next octet. @throws ConnectionError at the end of the block */
export function readOctet(cursor: Cursor): number {
  if (cursor.at >= cursor.end) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'header block ends too early');
  return cursor.bytes.readUInt8(cursor.at++);
}

/**
 * Reads an integer whose first octet has been read (RFC 7541 section 5.1).
 * @param first the first octet, with the bits before the prefix
 * @param prefix 1 to 8 bits
 */
export function readInteger(cursor: Cursor, first: number, prefix: number): number {
  const full = (1 << prefix) - 1;
  let value = first & full;
  if (value < full) return value;
  for (let shift = 0; shift <= 28; shift += 7) {
    const octet = readOctet(cursor);
    value += (octet & 0x7f) * 2 ** shift;
    if (value > LARGEST) break;
    if ((octet & 0x80) === 0) return value;
  }
  throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'integer too large');
}

/** Octets that {@link writeInteger} takes for this value. */
export function integerSize(value: number, prefix: number): number {
  const full = (1 << prefix) - 1;
  if (value < full) return 1;
  let size = 2;
  for (let rest = value - full; rest >= 0x80; rest = Math.floor(rest / 0x80)) size += 1;
  return size;
}

/**
 * Writes an integer with a prefix (RFC 7541 section 5.1), returns the place after it.
 * @param pattern the bits before the prefix
 */
export function writeInteger(into: Buffer, at: number, value: number, prefix: number, pattern: number): number {
  const full = (1 << prefix) - 1;
  if (value < full) return into.writeUInt8(pattern | value, at);
  let next = into.writeUInt8(pattern | full, at);
  let rest = value - full;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) next = into.writeUInt8((rest % 0x80) + 0x80, next);
  return into.writeUInt8(rest, next);
}
