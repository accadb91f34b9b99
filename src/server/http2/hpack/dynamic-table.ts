import type { HeaderField } from './field.ts';

/** A decoder's dynamic table (RFC 7541 2.3.2, RFC 7541 4): a queue of fields, bounded by their total size. */
export class DynamicTable {
  /** A ring: the newest field is at `#head - 1`. A field counts at least 32 octets, which bounds the slots. */
  readonly #slots: (HeaderField | undefined)[];
  #head = 0;
  #count = 0;
  #size = 0;
  #capacity: number;

  /** @param capacity in octets; also the maximum for {@link resize} */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#slots = new Array<HeaderField | undefined>(Math.max(1, Math.floor(capacity / 32)));
  }

  /** Returns the field at this index; the newest has index 0. */
  at(index: number): HeaderField | undefined {
    if (index >= this.#count) return undefined;
    return this.#slots[(this.#head - 1 - index + this.#slots.length) % this.#slots.length];
  }

  get size(): number {
    return this.#size;
  }

  get length(): number {
    return this.#count;
  }

  /** Adds a field and evicts old ones. A field larger than the table empties it (RFC 7541 4.4). */
  add(field: HeaderField): void {
    this.#evict(this.#capacity - field.size);
    if (field.size > this.#capacity) return;
    this.#slots[this.#head] = field;
    this.#head = (this.#head + 1) % this.#slots.length;
    this.#count += 1;
    this.#size += field.size;
  }

  /** Applies a dynamic table size update (RFC 7541 4.3). */
  resize(capacity: number): void {
    this.#capacity = capacity;
    this.#evict(capacity);
  }

  #evict(limit: number): void {
    while (this.#count > 0 && this.#size > limit) {
      const oldest = (this.#head - this.#count + this.#slots.length) % this.#slots.length;
      this.#size -= this.#slots[oldest]?.size ?? 0;
      this.#slots[oldest] = undefined;
      this.#count -= 1;
    }
  }
}
