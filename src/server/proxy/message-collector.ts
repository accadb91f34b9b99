import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';

/** The smallest memory for a message that comes in several parts. */
const SMALLEST_CAPACITY = 1024;
const NOTHING = Buffer.alloc(0);

/**
 * - `partial`: the message is not complete yet.
 * - `complete`: exactly one message.
 * - `unusable`: compressed, too long, or more than one message.
 */
export type Collected = 'partial' | 'complete' | 'unusable';

/**
 * Reassembles one gRPC message from the payloads of DATA frames, however the message is split among them. Copies the
 * parts into one buffer, so that many small ones cost no more memory than one large one.
 */
export class MessageCollector {
  #bytes = NOTHING;
  #size = 0;
  #needed = MESSAGE_PREFIX_SIZE;
  #state: Collected = 'partial';

  /** @param limit the longest message that is collected, in bytes */
  constructor(private readonly limit: number) {}

  get state(): Collected {
    return this.#state;
  }

  /** Collected bytes. */
  get size(): number {
    return this.#size;
  }

  /** Bytes that the message still needs, as far as known. */
  get missing(): number {
    return this.#needed - this.#size;
  }

  add(part: Buffer): Collected {
    if (part.length === 0 || this.#state === 'unusable') return this.#state;
    const before = this.#size;
    this.#append(part);
    if (before < MESSAGE_PREFIX_SIZE && this.#size >= MESSAGE_PREFIX_SIZE && !this.#readPrefix())
      this.#state = 'unusable';
    else if (this.#size > this.#needed) this.#state = 'unusable';
    else if (this.#size === this.#needed && this.#size >= MESSAGE_PREFIX_SIZE) this.#state = 'complete';
    return this.#state;
  }

  /** The collected bytes as received, prefix included. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#size);
  }

  /** Returns the message without its prefix. Requires the state `complete`. */
  message(): Buffer {
    return this.#bytes.subarray(MESSAGE_PREFIX_SIZE, this.#size);
  }

  /** Frees the bytes. */
  clear(): void {
    this.#bytes = NOTHING;
    this.#size = 0;
    this.#state = 'unusable';
  }

  /** Adds a part. Most messages come in one part, whose copy then needs no further memory. */
  #append(part: Buffer): void {
    const size = this.#size + part.length;
    if (this.#size === 0) this.#bytes = Buffer.from(part);
    else {
      if (size > this.#bytes.length) this.#makeRoom(size);
      part.copy(this.#bytes, this.#size);
    }
    this.#size = size;
  }

  #makeRoom(size: number): void {
    // Not more than doubled at a time: a peer may announce a long message and send nothing.
    const wanted = Math.min(Math.max(this.#needed, size), 2 * size);
    const memory = Buffer.allocUnsafe(Math.max(SMALLEST_CAPACITY, wanted));
    this.#bytes.copy(memory, 0, 0, this.#size);
    this.#bytes = memory;
  }

  #readPrefix(): boolean {
    const length = this.#bytes.readUInt32BE(1);
    this.#needed = MESSAGE_PREFIX_SIZE + length;
    return this.#bytes.readUInt8(0) === 0 && length <= this.limit;
  }
}
