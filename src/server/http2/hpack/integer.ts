import { ConnectionError, ErrorCode } from '../errors.ts';

/** A position in a header block. Reading advances it. */
export interface Cursor {
  readonly bytes: Buffer;
  at: number;
  readonly end: number;
}

/**
 * The largest integer accepted. RFC 7541 5.1 leaves the limit to the implementation. Lengths, indices and table sizes
 * of accepted blocks are far below it. It fits in four more octets, so a long run of 0x80 is rejected early.
 */
const LARGEST = 2 ** 28 - 1;

/** Reads the next octet. @throws ConnectionError at the end of the block */
export function readOctet(cursor: Cursor): number {
  if (cursor.at >= cursor.end) throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'header block is truncated');
  return cursor.bytes.readUInt8(cursor.at++);
}

/**
 * Reads an integer whose first octet has been read (RFC 7541 5.1).
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

/** Returns the number of octets that {@link writeInteger} writes for this value. */
export function integerSize(value: number, prefix: number): number {
  const full = (1 << prefix) - 1;
  if (value < full) return 1;
  let size = 2;
  for (let rest = value - full; rest >= 0x80; rest = Math.floor(rest / 0x80)) size += 1;
  return size;
}

/**
 * Writes an integer with a prefix (RFC 7541 5.1). Returns the position after it.
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
