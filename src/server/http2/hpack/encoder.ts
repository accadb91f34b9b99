import type { HeaderField } from './field.ts';

/** A dynamic table size update to 0 (RFC 7541 section 6.3). */
const NO_TABLE = Buffer.of(0x20);

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

  encode(fields: readonly HeaderField[]): Buffer {
    const prefix = this.#announced ? 0 : NO_TABLE.length;
    let size = prefix;
    for (const field of fields) size += field.wire.length;
    const block = Buffer.allocUnsafe(size);
    if (!this.#announced) block.set(NO_TABLE);
    this.#announced = true;
    let at = prefix;
    for (const field of fields) {
      block.set(field.wire, at);
      at += field.wire.length;
    }
    return block;
  }
}
