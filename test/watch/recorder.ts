/** What a pod's limits and volumes are at one instant, in the order in which they are read. */
export type State = readonly string[];

/**
 * Looks at values that others change, and keeps each state that they were in. What is read one after the other need not have been
 * there at one instant: a container can be lowered after it was read, and another raised before it is. So a state counts
 * once it has been read twice without a difference; the instant is the one between the two.
 */
export class Recorder {
  readonly #read: () => State;
  readonly #seen: State[] = [];
  #readings = 0;

  constructor(read: () => State) {
    this.#read = read;
  }

  /** Reads all of them, until nothing is changed meanwhile. */
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

  /** In order, without repeats. */
  get seen(): readonly State[] {
    return this.#seen;
  }
}

const same = (one: State, other: State | undefined): boolean =>
  one.length === other?.length && one.every((value, index) => value === other[index]);
