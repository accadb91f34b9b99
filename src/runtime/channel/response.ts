import { Code, MESSAGE_PREFIX_SIZE, MiB } from '../../core/index.ts';
import { type HeaderField, HpackDecoder } from '../../http2/index.ts';
import { malformed, type Outcome } from './outcome.ts';

/** Minimum memory of a message. It doubles each time as bytes arrive, regardless of the announced size. */
const FIRST_SIZE = 16_384;

const NOTHING = Buffer.alloc(0);

const MORE: Outcome = {
  code: Code.INTERNAL,
  details: 'the backend answered a unary call with more than one message',
};

/** The memory of all responses that are being read, in bytes. */
export class ResponseMemory {
  #used = 0;

  constructor(private readonly limit: number) {}

  get used(): number {
    return this.#used;
  }

  /** Takes bytes if they fit the limit; returns whether they do. Taken bytes count until {@link free}. */
  take(bytes: number): boolean {
    if (this.#used + bytes > this.limit) return false;
    this.#used += bytes;
    return true;
  }

  free(bytes: number): void {
    this.#used -= bytes;
  }
}

/** Reads the one message of a unary response. Copies it, so that the memory of the socket's reads can be used again. */
export class MessageReader {
  /** Bytes of the prefix that were read. */
  #prefix = 0;
  #length = 0;
  #bytes = NOTHING;
  #filled = 0;

  /** @param limit the longest message, in bytes */
  constructor(
    private readonly memory: ResponseMemory,
    private readonly limit: number,
  ) {}

  /** Whether any byte has arrived. */
  get hasBegun(): boolean {
    return this.#prefix > 0;
  }

  /** The message, when all of it has arrived. */
  get message(): Buffer | undefined {
    return this.#prefix === MESSAGE_PREFIX_SIZE && this.#filled === this.#length ? this.#bytes : undefined;
  }

  /** Takes the next bytes of the response. Returns how the call ends, if they end it. */
  take(bytes: Buffer): Outcome | undefined {
    let at = 0;
    while (at < bytes.length) {
      if (this.message !== undefined) return MORE;
      if (this.#prefix < MESSAGE_PREFIX_SIZE) {
        const wrong = this.#readPrefix(bytes[at++] ?? 0);
        if (wrong !== undefined) return wrong;
      } else {
        const end = Math.min(bytes.length, at + this.#length - this.#filled);
        if (!this.#reserve(this.#filled + end - at)) return this.#outOfMemory();
        this.#filled += bytes.copy(this.#bytes, this.#filled, at, end);
        at = end;
      }
    }
    return undefined;
  }

  /** Frees the memory for other responses. The message stays valid. */
  close(): void {
    this.memory.free(this.#bytes.length);
    this.#bytes = NOTHING;
  }

  #readPrefix(octet: number): Outcome | undefined {
    this.#prefix += 1;
    if (this.#prefix === 1) return octet === 0 ? undefined : compressed(octet);
    this.#length = this.#length * 256 + octet;
    if (this.#prefix < MESSAGE_PREFIX_SIZE || this.#length <= this.limit) return undefined;
    return {
      code: Code.RESOURCE_EXHAUSTED,
      details: `Received message larger than max (${this.#length} vs ${this.limit})`,
    };
  }

  #reserve(needed: number): boolean {
    const before = this.#bytes;
    if (needed <= before.length) return true;
    const size = Math.min(this.#length, Math.max(needed, 2 * before.length, FIRST_SIZE));
    if (!this.memory.take(size - before.length)) return false;
    this.#bytes = Buffer.allocUnsafe(size);
    before.copy(this.#bytes, 0, 0, this.#filled);
    return true;
  }

  #outOfMemory(): Outcome {
    const details = 'the responses of all calls to the backend take too much memory';
    return { code: Code.RESOURCE_EXHAUSTED, details, hasNoAnswer: true };
  }
}

/** Calls accept no compression (`grpc-accept-encoding`), so no response may be compressed (compression.md of grpc). */
const compressed = (flag: number): Outcome =>
  malformed(flag === 1 ? 'its message is compressed, which no call accepts' : `compressed flag ${flag}`);

/** The largest header list of the server, encoded and decoded, in bytes: that of servers behind the proxy. */
export const HEADER_LIST_LIMIT = MiB;

/** Maximum number of cached blocks. Most calls get the same two. */
const MAX_KNOWN = 4;
/** Length of the longest cached block. */
const LONGEST_KNOWN = 256;

interface KnownBlock {
  readonly bytes: Buffer;
  readonly fields: readonly HeaderField[];
}

/**
 * Decodes the header blocks of a server that must not use a dynamic table. Such a block always has the same fields, so
 * frequent blocks are decoded only once.
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
