import { ConnectionError, ErrorCode } from '../errors.ts';

const NO_INDEXING = 0x00;
const NEVER_INDEXED = 0x10;
const INDEXED = 0x80;

/**
 * One header field. Name and value hold one character for each octet (latin1), so that any octets are preserved. They
 * are forwarded unchecked: the server validates them.
 */
export class HeaderField {
  #wire: Buffer | undefined;
  readonly #isReceived: boolean;

  /**
   * @param nameIndex the static table's index of the name, 0 when it has none
   * @param staticIndex the static table's index of name and value together, 0 when there is none
   * @param sensitive received as a never-indexed literal, and to be forwarded as one (RFC 7541 7.1.3)
   * @param wire the field as received, if that form neither uses nor changes a dynamic table. It has to be valid as
   * long as the field is used
   */
  constructor(
    readonly name: string,
    readonly value: string,
    readonly nameIndex: number,
    readonly staticIndex: number,
    readonly sensitive: boolean,
    wire?: Buffer,
  ) {
    this.#wire = wire;
    this.#isReceived = wire !== undefined;
  }

  /** Returns the field without the bytes as received, for use after its read, whose memory is reused. */
  owned(): HeaderField {
    if (!this.#isReceived) return this;
    return new HeaderField(this.name, this.value, this.nameIndex, this.staticIndex, this.sensitive);
  }

  /** Size in the header list and the dynamic table (RFC 7541 4.1, RFC 9113 6.5.2). */
  get size(): number {
    return this.name.length + this.value.length + 32;
  }

  /**
   * The field in a form that neither uses nor changes a dynamic table: a static index or a literal (RFC 7541 6.1,
   * RFC 7541 6.2.2, RFC 7541 6.2.3). Cached, because fields that a client repeats stay in its dynamic table.
   */
  get wire(): Buffer {
    this.#wire ??= this.#encode();
    return this.#wire;
  }

  #encode(): Buffer {
    if (this.staticIndex !== 0) return Buffer.of(INDEXED | this.staticIndex);
    const { name, value, nameIndex } = this;
    const nameSize = nameIndex === 0 ? integerSize(name.length, 7) + name.length : 0;
    const bytes = Buffer.allocUnsafe(
      integerSize(nameIndex, 4) + nameSize + integerSize(value.length, 7) + value.length,
    );
    let at = writeInteger(bytes, 0, nameIndex, 4, this.sensitive ? NEVER_INDEXED : NO_INDEXING);
    if (nameIndex === 0) at = writeString(bytes, at, name);
    writeString(bytes, at, value);
    return bytes;
  }
}

/** Up to this many octets, a loop costs less than a call of native code. */
export const SHORT = 40;

function writeString(into: Buffer, at: number, text: string): number {
  const { length } = text;
  const from = writeInteger(into, at, length, 7, 0);
  if (length > SHORT) return from + into.write(text, from, 'latin1');
  for (let index = 0; index < length; index += 1) into[from + index] = text.charCodeAt(index);
  return from + length;
}

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
