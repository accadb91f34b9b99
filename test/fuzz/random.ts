/** A small, fast generator of repeatable numbers (xorshift32 over a hashed seed). Not for other purposes. */
export class Random {
  #state: number;

  constructor(seed: number, index: number) {
    let mixed = (seed ^ Math.imul(index + 1, 0x9e3779b1)) >>> 0;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b) >>> 0;
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35) >>> 0;
    this.#state = (mixed ^ (mixed >>> 16)) >>> 0 || 1;
  }

  /** Returns a number from 0 to 2^32 - 1. */
  next(): number {
    let state = this.#state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state = state >>> 0;
    return this.#state;
  }

  /** Returns a number from 0 to `limit` - 1. */
  below(limit: number): number {
    return this.next() % limit;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  chance(one: number): boolean {
    return this.below(one) === 0;
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; at += 1) bytes[at] = this.next() >>> 24;
    return bytes;
  }
}
