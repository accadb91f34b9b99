import { MESSAGE_PREFIX_SIZE } from './grpc.ts';

/**
 * - `more`: no whole message yet.
 * - `whole`: exactly one.
 * - `unfit`: compressed, too long, or more than one message.
 */
export type Collected = 'more' | 'whole' | 'unfit';

/** Puts one gRPC message together from the payloads of DATA frames, however they are cut. */
export class MessageCollector {
  #parts: Buffer[] = [];
  #size = 0;
  #needed = MESSAGE_PREFIX_SIZE;
  #state: Collected = 'more';
  readonly #limit: number;

  /** @param limit bytes of a message that is kept */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get state(): Collected {
    return this.#state;
  }

  /** Bytes kept. */
  get size(): number {
    return this.#size;
  }

  /** Bytes that the message still needs, as far as is known. */
  get missing(): number {
    return this.#needed - this.#size;
  }

  add(part: Buffer): Collected {
    if (part.length === 0 || this.#state === 'unfit') return this.#state;
    this.#parts.push(part);
    const before = this.#size;
    this.#size += part.length;
    if (before < MESSAGE_PREFIX_SIZE && this.#size >= MESSAGE_PREFIX_SIZE && !this.#readPrefix()) this.#state = 'unfit';
    else if (this.#size > this.#needed) this.#state = 'unfit';
    else if (this.#size === this.#needed && this.#size >= MESSAGE_PREFIX_SIZE) this.#state = 'whole';
    return this.#state;
  }

  /** Everything that came, prefix included, as it came. */
  get parts(): Buffer[] {
    return this.#parts;
  }

  /** The message without its prefix, in one piece. Only of a whole one. */
  message(): Buffer {
    const whole = this.#joined();
    return whole.subarray(MESSAGE_PREFIX_SIZE);
  }

  /** Lets go of the bytes. */
  clear(): void {
    this.#parts = [];
    this.#size = 0;
    this.#state = 'unfit';
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
