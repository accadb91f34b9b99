/** Which request a waiting one may be overtaken by. */
export interface Slot {
  /** Requests of one name are about the same thing: a container, by its id. */
  readonly name: string;
  /** The fields that the request sets. */
  readonly sets: ReadonlySet<string>;
}

interface Waiting {
  slot: Slot | undefined;
  action: () => Promise<unknown>;
  readonly outcome: Promise<unknown>;
  readonly start: () => Promise<void>;
}

/** One at a time for each key; keys side by side. A key takes no room once nobody holds it or waits for it. */
export class KeyedLock {
  /** Who waits, for each key that is held. */
  readonly #queues = new Map<string, Waiting[]>();

  /**
   * Runs `action` after all that came before it for `key` have ended, however they ended. Gives what it gives.
   *
   * With a slot: while it waits, a later request of the same name that sets all that it sets takes its place, and both
   * callers get that one's outcome. (One that sets less would lose what the other asked for: it waits its turn.)
   */
  run<Result>(key: string, action: () => Promise<Result>, slot?: Slot): Promise<Result> {
    const queue = this.#queues.get(key);
    const overtaken = queue?.findLast((waiting) => slot !== undefined && waiting.slot?.name === slot.name);
    if (overtaken !== undefined && slot !== undefined && isCovered(overtaken.slot, slot)) {
      overtaken.slot = slot;
      overtaken.action = action;
      return overtaken.outcome as Promise<Result>;
    }
    const waiting = waitingFor(action, slot);
    if (queue === undefined) {
      this.#queues.set(key, []);
      void this.#work(key, waiting);
    } else {
      queue.push(waiting);
    }
    return waiting.outcome as Promise<Result>;
  }

  /** Whether something runs for a key. */
  isHeld(key: string): boolean {
    return this.#queues.has(key);
  }

  /** Requests that wait for a key. */
  waiting(key: string): number {
    return this.#queues.get(key)?.length ?? 0;
  }

  async #work(key: string, first: Waiting): Promise<void> {
    for (let next: Waiting | undefined = first; next !== undefined; next = this.#queues.get(key)?.shift())
      await next.start();
    this.#queues.delete(key);
  }
}

function waitingFor(action: () => Promise<unknown>, slot: Slot | undefined): Waiting {
  let start = (): Promise<void> => Promise.resolve();
  const outcome = new Promise<unknown>((resolve, reject) => {
    // Ends when the action has ended, and never rejects: that is for the callers.
    start = () => new Promise((run) => run(waiting.action())).then(resolve, reject);
  });
  const waiting: Waiting = { slot, action, outcome, start };
  return waiting;
}

const isCovered = (earlier: Slot | undefined, later: Slot): boolean =>
  earlier !== undefined && [...earlier.sets].every((field) => later.sets.has(field));
