import type { HeaderField } from './field.ts';

/** A decoder's dynamic table (RFC 7541 section 2.3.2, 4): a queue of fields, bounded by their size. */
export class DynamicTable {
  /** A ring: the newest field is at `#head - 1`. A field counts 32 octets at least, so that few slots are enough. */
  readonly #slots: (HeaderField | undefined)[];
  #head = 0;
  #count = 0;
  #size = 0;
  #capacity: number;

  /** @param capacity octets; also the most that {@link resize} takes */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#slots = new Array<HeaderField | undefined>(Math.max(1, Math.floor(capacity / 32)));
  }

  /** The field added `index` additions before the newest, which is 0. */
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

  /** Adds a field and evicts old ones; one that is larger than the table empties it (section 4.4). */
  add(field: HeaderField): void {
    this.#evict(this.#capacity - field.size);
    if (field.size > this.#capacity) return;
    this.#slots[this.#head] = field;
    this.#head = (this.#head + 1) % this.#slots.length;
    this.#count += 1;
    this.#size += field.size;
  }

  /** A dynamic table size update (section 4.3). */
  resize(capacity: number): void {
    this.#capacity = capacity;
    this.#evict(capacity);
  }

  #evict(room: number): void {
    while (this.#count > 0 && this.#size > room) {
      const oldest = (this.#head - this.#count + this.#slots.length) % this.#slots.length;
      this.#size -= this.#slots[oldest]?.size ?? 0;
      this.#slots[oldest] = undefined;
      this.#count -= 1;
    }
  }
}
