import type { HeaderField } from './field.ts';

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
      // Most fields of a client that repeats itself have few octets: a loop costs less than a call.
      if (wire.length > 8) block.set(wire, at);
      else for (let index = 0; index < wire.length; index += 1) block[at + index] = wire[index] ?? 0;
      at += wire.length;
    }
    return block;
  }
}
