/** Limits and volume sizes of a pod at one instant, in the order in which they are read. */
export type State = readonly string[];

/**
 * Reads values that other processes change, and records each state. Values that are read one after the other may not
 * have existed at one instant: one container can be lowered after its limit was read, and another one raised before. So
 * a state is recorded only if two readings in a row agree. It existed between the two.
 */
export class Recorder {
  readonly #read: () => State;
  readonly #seen: State[] = [];
  #readings = 0;

  constructor(read: () => State) {
    this.#read = read;
  }

  /** Reads all values until two readings agree. */
  look(): void {
    const isLast = (state: State): boolean => same(state, this.#seen.at(-1));
    let state = this.#read();
    while (!isLast(state)) {
      const again = this.#read();
      if (same(state, again)) this.#seen.push(state);
      state = again;
    }
    this.#readings += 1;
  }

  get readings(): number {
    return this.#readings;
  }

  /** The recorded states, in order, without repeats. */
  get seen(): readonly State[] {
    return this.#seen;
  }
}

const same = (one: State, other: State | undefined): boolean =>
  one.length === other?.length && one.every((value, index) => value === other[index]);
