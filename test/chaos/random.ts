/** Random numbers that can be reproduced with the same seed (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Returns a number from 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns an integer from `least` to `most`. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  pick<Item>(items: readonly [Item, ...Item[]]): Item {
    return items[this.integer(0, items.length - 1)] ?? items[0];
  }

  shuffled<Item>(items: readonly Item[]): Item[] {
    return items
      .map((item) => [this.next(), item] as const)
      .toSorted(([a], [b]) => a - b)
      .map(([, item]) => item);
  }
}

/** Returns the fault of each round: each fault occurs once before any occurs again. */
export function schedule<Fault>(faults: readonly Fault[], rounds: number, seed: number): Fault[] {
  const random = new Random(seed);
  const order: Fault[] = [];
  while (faults.length > 0 && order.length < rounds) order.push(...random.shuffled(faults));
  return order.slice(0, rounds);
}
