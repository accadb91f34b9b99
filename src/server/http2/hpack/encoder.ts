import type { HeaderField } from './field.ts';

/** A dynamic table size update to 0 (RFC 7541 section 6.3). */
const NO_TABLE = 0x20;

/**
 * Writes header blocks that use no dynamic table, and says so once, at the start of the first block: a peer that lowered its
 * SETTINGS_HEADER_TABLE_SIZE may insist on it (RFC 7541 section 4.2).
 */
export class HpackEncoder {
  #announced = false;

  /** Whether blocks of others that use no dynamic table can go in between. */
  get announced(): boolean {
    return this.#announced;
  }

  /**
   * A block with these fields.
   * @param room bytes to leave free before it, for a frame header: a copy less
   */
  encode(fields: readonly HeaderField[], room = 0): Buffer {
    let at = room;
    let size = this.#announced ? room : room + 1;
    for (const field of fields) size += field.wire.length;
    const block = Buffer.allocUnsafe(size);
    if (!this.#announced) at = block.writeUInt8(NO_TABLE, at);
    this.#announced = true;
    for (const { wire } of fields) {
      // Most fields of a client that repeats itself are a few octets: cheaper one by one than by a call.
      if (wire.length > 8) block.set(wire, at);
      else for (let index = 0; index < wire.length; index += 1) block[at + index] = wire[index] ?? 0;
      at += wire.length;
    }
    return block;
  }
}
