import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';

/** The smallest memory for bytes that wait: most events fit. */
const SMALLEST_CAPACITY = 4096;
const NOTHING = Buffer.alloc(0);

/** Bytes that leave a {@link MessageBuffer}. */
export type Piece =
  /** A whole message with its gRPC prefix, to be amended. */
  | { readonly kind: 'message'; readonly bytes: Buffer }
  /** A part of a message that is forwarded as received. `begins`: it is found here that the message is unusable. */
  | { readonly kind: 'pass'; readonly bytes: Buffer; readonly begins: boolean };

/**
 * Splits a stream of bytes into gRPC messages, wherever it is cut. Copies the parts into one buffer, so that
 * many small ones cost no more memory than one large one. Holds no memory between messages.
 */
export class MessageBuffer {
  #bytes = NOTHING;
  #from = 0;
  #to = 0;
  /** Bytes that remain of a message that is forwarded as received. */
  #passing = 0;

  /** @param limit the longest message that is amended, in bytes */
  constructor(private readonly limit: number) {}

  /** Bytes that were added and not taken. */
  get size(): number {
    return this.#to - this.#from;
  }

  /** Bytes that the first message still needs, as far as known. */
  get missing(): number {
    return Math.max(0, this.#needed - this.size);
  }

  add(part: Buffer): void {
    if (this.#to + part.length > this.#bytes.length) this.#makeRoom(part.length);
    this.#to += part.copy(this.#bytes, this.#to);
  }

  /**
   * Takes the first message, or what there is of it if it is unusable: compressed or too long. Undefined if more bytes
   * have to come.
   */
  take(): Piece | undefined {
    let begins = false;
    if (this.#passing === 0) {
      if (this.size < MESSAGE_PREFIX_SIZE) return undefined;
      begins = this.#isUnusable;
      if (begins) this.pass();
      else if (this.size < this.#needed) return undefined;
      else return { kind: 'message', bytes: this.#remove(this.#needed) };
    }
    if (this.size === 0) return undefined;
    const bytes = this.#remove(Math.min(this.size, this.#passing));
    this.#passing -= bytes.length;
    return { kind: 'pass', bytes, begins };
  }

  /** Forwards the first message as received. Later ones are not affected. Requires its whole prefix. */
  pass(): void {
    this.#passing = this.#needed;
  }

  /** Takes all bytes. */
  takeRest(): Buffer {
    return this.#remove(this.size);
  }

  /** The first message's length with its prefix, or as much of it as is needed to know that. */
  get #needed(): number {
    if (this.size < MESSAGE_PREFIX_SIZE) return MESSAGE_PREFIX_SIZE;
    return MESSAGE_PREFIX_SIZE + this.#bytes.readUInt32BE(this.#from + 1);
  }

  get #isUnusable(): boolean {
    return this.#bytes.readUInt8(this.#from) !== 0 || this.#needed > MESSAGE_PREFIX_SIZE + this.limit;
  }

  #remove(length: number): Buffer {
    const bytes = this.#bytes.subarray(this.#from, this.#from + length);
    this.#from += length;
    if (this.size > 0) return Buffer.from(bytes);
    // Nothing else is in that memory: it goes with the bytes.
    this.#bytes = NOTHING;
    this.#from = 0;
    this.#to = 0;
    return bytes;
  }

  #makeRoom(length: number): void {
    const { size } = this;
    const memory = Buffer.allocUnsafe(Math.max(SMALLEST_CAPACITY, size + length, 2 * size));
    this.#bytes.copy(memory, 0, this.#from, this.#to);
    this.#bytes = memory;
    this.#from = 0;
    this.#to = size;
  }
}
