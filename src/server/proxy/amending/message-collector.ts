import { MESSAGE_PREFIX_SIZE } from '../grpc.ts';

/**
 * - `partial`: the message is not complete yet.
 * - `complete`: exactly one message.
 * - `unusable`: compressed, too long, or more than one message.
 */
export type Collected = 'partial' | 'complete' | 'unusable';

/** Reassembles one gRPC message from the payloads of DATA frames, however the message is split among them. */
export class MessageCollector {
  #parts: Buffer[] = [];
  #size = 0;
  #needed = MESSAGE_PREFIX_SIZE;
  #state: Collected = 'partial';
  readonly #limit: number;

  /** @param limit the longest message that is collected, in bytes */
  constructor(limit: number) {
    this.#limit = limit;
  }

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
    this.#parts.push(part);
    const before = this.#size;
    this.#size += part.length;
    if (before < MESSAGE_PREFIX_SIZE && this.#size >= MESSAGE_PREFIX_SIZE && !this.#readPrefix())
      this.#state = 'unusable';
    else if (this.#size > this.#needed) this.#state = 'unusable';
    else if (this.#size === this.#needed && this.#size >= MESSAGE_PREFIX_SIZE) this.#state = 'complete';
    return this.#state;
  }

  /** The collected bytes as received, prefix included. */
  get parts(): Buffer[] {
    return this.#parts;
  }

  /** Returns the message without its prefix, as one buffer. Requires the state `complete`. */
  message(): Buffer {
    return this.#joined().subarray(MESSAGE_PREFIX_SIZE);
  }

  /** Frees the bytes. */
  clear(): void {
    this.#parts = [];
    this.#size = 0;
    this.#state = 'unusable';
  }

  #readPrefix(): boolean {
    const [first] = this.#parts;
    const bytes = first !== undefined && first.length >= MESSAGE_PREFIX_SIZE ? first : Buffer.concat(this.#parts);
    const length = bytes.readUInt32BE(1);
    this.#needed = MESSAGE_PREFIX_SIZE + length;
    return bytes.readUInt8(0) === 0 && length <= this.#limit;
  }

  #joined(): Buffer {
    const [first] = this.#parts;
    const joined = first !== undefined && this.#parts.length === 1 ? first : Buffer.concat(this.#parts);
    this.#parts = [joined];
    return joined;
  }
}
