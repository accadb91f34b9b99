import { steadyNow } from '../../core/concurrency/index.ts';

/** The maximum delay of a timer: 24 days. A longer one fires immediately. */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * The deadlines of all calls, with one timer. It is set when an earlier deadline than all others is added, and not when one is removed,
 * so that most calls set none.
 */
export class Deadlines<Item extends { readonly due: number }> {
  readonly #items = new Set<Item>();
  readonly #expired: (item: Item) => void;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires, by steadyNow. */
  #at = Infinity;

  /** @param expired called with an item that is due, which has been removed */
  constructor(expired: (item: Item) => void) {
    this.#expired = expired;
  }

  get size(): number {
    return this.#items.size;
  }

  /** Adds an item, or notes that it is due earlier than before. */
  add(item: Item): void {
    this.#items.add(item);
    if (item.due < this.#at) this.#set(item.due);
  }

  delete(item: Item): void {
    this.#items.delete(item);
  }

  /** Removes the timer if there are no items. */
  trim(): void {
    if (this.#items.size > 0) return;
    clearTimeout(this.#timer);
    this.#at = Infinity;
  }

  #set(due: number): void {
    clearTimeout(this.#timer);
    this.#at = due;
    const ms = Math.min(Math.max(0, Math.ceil(due - steadyNow())), LONGEST_MS);
    // Items do not keep the process alive: the connections that they wait for do.
    this.#timer = setTimeout(() => this.#fire(), ms).unref();
  }

  #fire(): void {
    const now = steadyNow();
    this.#at = Infinity;
    let next = Infinity;
    for (const item of this.#items) {
      if (item.due <= now) {
        this.#items.delete(item);
        this.#expired(item);
      } else {
        next = Math.min(next, item.due);
      }
    }
    if (next < this.#at) this.#set(next);
  }
}
