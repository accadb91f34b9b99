import { ConnectionError, ErrorCode } from '../errors.ts';
import { DynamicTable } from './dynamic-table.ts';
import { HeaderField } from './field.ts';
import { decodeHuffman } from './huffman.ts';
import { readInteger, readOctet } from './integer.ts';
import type { Cursor } from './integer.ts';
import { STATIC_TABLE_SIZE, staticField } from './static-table.ts';

/** SETTINGS_HEADER_TABLE_SIZE when nobody says otherwise (RFC 9113 section 6.5.2). */
export const DEFAULT_TABLE_SIZE = 4096;

/** Reads the header blocks of one direction of one connection (RFC 7541 section 3.2). */
export class HpackDecoder {
  readonly #table: DynamicTable;
  readonly #tableLimit: number;
  readonly #listLimit: number;
  #plain = true;

  /**
   * @param tableLimit octets: the SETTINGS_HEADER_TABLE_SIZE that the encoder was told
   * @param listLimit octets of a decoded header list, counted as in RFC 9113 section 6.5.2
   */
  constructor(tableLimit: number, listLimit: number) {
    this.#table = new DynamicTable(tableLimit);
    this.#tableLimit = tableLimit;
    this.#listLimit = listLimit;
  }

  /** Whether the last block neither read nor changed the dynamic table: it means the same to every decoder. */
  get plain(): boolean {
    return this.#plain;
  }

  /**
   * Decodes a whole block. Every block has to come here, in the order of the connection, even of a stream that nobody
   * wants: the table of the next one depends on it.
   * @throws ConnectionError COMPRESSION_ERROR for a broken block, ENHANCE_YOUR_CALM for one that is too large
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
      if (size > this.#listLimit) throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'header list too large');
      fields.push(field);
    }
    return fields;
  }

  /** Section 6.1 (indexed), 6.2.1 (added to the table), 6.2.2 (not added), 6.2.3 (never to be added by anyone). */
  #field(cursor: Cursor, first: number): HeaderField {
    if ((first & 0x80) !== 0) return this.#lookUp(readInteger(cursor, first, 7));
    const start = cursor.at - 1;
    if ((first & 0x40) === 0) return this.#literal(cursor, readInteger(cursor, first, 4), (first & 0x10) !== 0, start);
    const field = this.#literal(cursor, readInteger(cursor, first, 6), false, -1);
    this.#table.add(field);
    this.#plain = false;
    return field;
  }

  /** @param start where the field began, if it may be sent on as it came; -1 if it may not */
  #literal(cursor: Cursor, index: number, sensitive: boolean, start: number): HeaderField {
    const named = index === 0 ? undefined : this.#lookUp(index);
    const name = named === undefined ? readString(cursor) : named.name;
    const value = readString(cursor);
    const asItCame = start >= 0 && index <= STATIC_TABLE_SIZE ? cursor.bytes.subarray(start, cursor.at) : undefined;
    return new HeaderField(name, value, named?.nameIndex ?? 0, 0, sensitive, asItCame);
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
    if (size > this.#tableLimit)
      throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, `table size ${size} is more than ${this.#tableLimit}`);
    this.#table.resize(size);
    this.#plain = false;
  }
}

/** A string literal (section 5.2). */
function readString(cursor: Cursor): string {
  const first = readOctet(cursor);
  const length = readInteger(cursor, first, 7);
  const start = cursor.at;
  if (length > cursor.end - start)
    throw new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'string longer than its block');
  cursor.at += length;
  if ((first & 0x80) !== 0) return decodeHuffman(cursor.bytes, start, cursor.at);
  return cursor.bytes.toString('latin1', start, cursor.at);
}
