import { ConnectionError, ErrorCode } from '../errors.ts';
import { type Cursor, HeaderField, readInteger, readOctet, SHORT } from './field.ts';
import { decodeHuffman } from './huffman.ts';
import { STATIC_TABLE_SIZE, staticField } from './static-table.ts';

/** Initial value of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 6.5.2). */
export const DEFAULT_TABLE_SIZE = 4096;

/** Decodes the header blocks of one direction of one connection (RFC 7541 3.2). */
export class HpackDecoder {
  readonly #table: DynamicTable;
  #plain = true;

  /**
   * @param tableLimit the SETTINGS_HEADER_TABLE_SIZE that the encoder was sent, in octets
   * @param listLimit the largest decoded header list in octets, counted as in RFC 9113 6.5.2
   */
  constructor(
    private readonly tableLimit: number,
    private readonly listLimit: number,
  ) {
    this.#table = new DynamicTable(tableLimit);
  }

  /** Whether the last block neither used nor changed the dynamic table, so that every decoder decodes it alike. */
  get plain(): boolean {
    return this.#plain;
  }

  /**
   * Decodes a complete block. Every block of the connection must be decoded, in order, even if its stream is ignored:
   * the dynamic table for the next one depends on it.
   * @throws ConnectionError COMPRESSION_ERROR for a malformed block, ENHANCE_YOUR_CALM for one that is too large
   */
  decode(block: Buffer): HeaderField[] {
    const cursor: Cursor = { bytes: block, at: 0, end: block.length };
    const fields: HeaderField[] = [];
    let size = 0;
    this.#plain = true;
    while (cursor.at < cursor.end) {
      const first = readOctet(cursor);
      if ((first & 0xe0) === 0x20) {
        this.#resize(readInteger(cursor, first, 5), fields.length);
        continue;
      }
      const field = this.#field(cursor, first);
      size += field.size;
      if (size > this.listLimit) throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'header list too large');
      fields.push(field);
    }
    return fields;
  }

  /**
   * Decodes a field: indexed (RFC 7541 6.1), with indexing (RFC 7541 6.2.1), without (RFC 7541 6.2.2), never (RFC 7541
   * 6.2.3).
   */
  #field(cursor: Cursor, first: number): HeaderField {
    if ((first & 0x80) !== 0) return this.#lookUp(readInteger(cursor, first, 7));
    const start = cursor.at - 1;
    if ((first & 0x40) === 0) return this.#literal(cursor, readInteger(cursor, first, 4), (first & 0x10) !== 0, start);
    const field = this.#literal(cursor, readInteger(cursor, first, 6), false, -1);
    this.#table.add(field);
    this.#plain = false;
    return field;
  }

  /** @param start position of the field if its encoding may be forwarded unchanged, otherwise -1 */
  #literal(cursor: Cursor, index: number, sensitive: boolean, start: number): HeaderField {
    const named = index === 0 ? undefined : this.#lookUp(index);
    const name = named === undefined ? readString(cursor) : named.name;
    const value = readString(cursor);
    const received = start >= 0 && index <= STATIC_TABLE_SIZE ? cursor.bytes.subarray(start, cursor.at) : undefined;
    return new HeaderField(name, value, named?.nameIndex ?? 0, 0, sensitive, received);
  }

  #lookUp(index: number): HeaderField {
    if (index > STATIC_TABLE_SIZE) this.#plain = false;
    const field = index <= STATIC_TABLE_SIZE ? staticField(index) : this.#table.at(index - STATIC_TABLE_SIZE - 1);
    if (field === undefined)
      throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, `index ${index} is not in the header tables`);
    return field;
  }

  #resize(size: number, fieldsBefore: number): void {
    if (fieldsBefore > 0)
      throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'table size update inside a header block');
    if (size > this.tableLimit)
      throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, `table size ${size} exceeds ${this.tableLimit}`);
    this.#table.resize(size);
    this.#plain = false;
  }
}

/** Reads a string literal (RFC 7541 5.2). */
function readString(cursor: Cursor): string {
  const first = readOctet(cursor);
  const length = readInteger(cursor, first, 7);
  const start = cursor.at;
  if (length > cursor.end - start)
    throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'string is longer than its header block');
  cursor.at += length;
  if ((first & 0x80) !== 0) return decodeHuffman(cursor.bytes, start, cursor.at);
  return cursor.bytes.toString('latin1', start, cursor.at);
}

/** A decoder's dynamic table (RFC 7541 2.3.2, RFC 7541 4): a queue of fields, bounded by their total size. */
class DynamicTable {
  /** A ring: the newest field is at `#head - 1`. A field counts at least 32 octets, which bounds the slots. */
  readonly #slots: (HeaderField | undefined)[];
  #head = 0;
  #count = 0;
  #size = 0;

  /** @param capacity in octets; also the maximum for {@link resize} */
  constructor(private capacity: number) {
    this.#slots = new Array<HeaderField | undefined>(Math.max(1, Math.floor(capacity / 32)));
  }

  /** Returns the field at this index; the newest has index 0. */
  at(index: number): HeaderField | undefined {
    if (index >= this.#count) return undefined;
    return this.#slots[(this.#head - 1 - index + this.#slots.length) % this.#slots.length];
  }

  get size(): number {
    return this.#size;
  }

  get length(): number {
    return this.#count;
  }

  /** Adds a field and evicts old ones. A field larger than the table empties it (RFC 7541 4.4). */
  add(field: HeaderField): void {
    this.#evict(this.capacity - field.size);
    if (field.size > this.capacity) return;
    this.#slots[this.#head] = field;
    this.#head = (this.#head + 1) % this.#slots.length;
    this.#count += 1;
    this.#size += field.size;
  }

  /** Applies a dynamic table size update (RFC 7541 4.3). */
  resize(capacity: number): void {
    this.capacity = capacity;
    this.#evict(capacity);
  }

  #evict(limit: number): void {
    while (this.#count > 0 && this.#size > limit) {
      const oldest = (this.#head - this.#count + this.#slots.length) % this.#slots.length;
      this.#size -= this.#slots[oldest]?.size ?? 0;
      this.#slots[oldest] = undefined;
      this.#count -= 1;
    }
  }
}

/** A dynamic table size update to 0 (RFC 7541 6.3). */
const NO_TABLE = 0x20;

/**
 * Encodes header blocks without a dynamic table. The first block starts with a table size update to 0, which a peer
 * that lowered its SETTINGS_HEADER_TABLE_SIZE may require (RFC 7541 4.2).
 */
export class HpackEncoder {
  #announced = false;

  /** Whether the table size update was sent. Foreign blocks that use no dynamic table may be sent after it. */
  get announced(): boolean {
    return this.#announced;
  }

  /**
   * Returns a block with these fields.
   * @param offset bytes to leave free before it for a frame header, which saves a copy
   */
  encode(fields: readonly HeaderField[], offset = 0): Buffer {
    let at = offset;
    let size = this.#announced ? offset : offset + 1;
    for (const field of fields) size += field.wire.length;
    const block = Buffer.allocUnsafe(size);
    if (!this.#announced) at = block.writeUInt8(NO_TABLE, at);
    this.#announced = true;
    for (const { wire } of fields) {
      if (wire.length > SHORT) block.set(wire, at);
      else for (let index = 0; index < wire.length; index += 1) block[at + index] = wire[index] ?? 0;
      at += wire.length;
    }
    return block;
  }
}
