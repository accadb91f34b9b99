import { MiB } from '../../../core/quantities/index.ts';
import { type HeaderField, HpackDecoder } from '../../../server/http2/index.ts';

/** The largest header list of the server, encoded and decoded, in bytes: that of servers behind the proxy. */
export const HEADER_LIST_LIMIT = MiB;

/** Blocks that are remembered. Most calls get the same two. */
const MAX_KNOWN = 4;
/** The longest block that is remembered. */
const LONGEST_KNOWN = 256;

interface KnownBlock {
  readonly bytes: Buffer;
  readonly fields: readonly HeaderField[];
}

/**
 * Decodes the header blocks of a server that may not use a dynamic table. A block has then the same fields each time, and frequent ones
 * are decoded once.
 */
export class HeaderBlocks {
  readonly #decoder = new HpackDecoder(0, HEADER_LIST_LIMIT);
  readonly #known: KnownBlock[] = [];
  #oldest = 0;

  /** @throws ConnectionError if the block is malformed, or too large */
  decode(block: Buffer): readonly HeaderField[] {
    for (const { bytes, fields } of this.#known) if (bytes.equals(block)) return fields;
    const fields = this.#decoder.decode(block);
    if (block.length <= LONGEST_KNOWN) {
      this.#known[this.#oldest] = { bytes: Buffer.from(block), fields };
      this.#oldest = (this.#oldest + 1) % MAX_KNOWN;
    }
    return fields;
  }
}
