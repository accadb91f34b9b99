import { integerSize, writeInteger } from './integer.ts';

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

  /** Returns the field for use after the read that it came in, whose memory is reused: without the bytes as received. */
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

function writeString(into: Buffer, at: number, text: string): number {
  const from = writeInteger(into, at, text.length, 7, 0);
  return from + into.write(text, from, 'latin1');
}
