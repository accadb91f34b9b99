import { steadyNow } from './clock.ts';
import { within } from './waiting.ts';

/** Identifies a request that a later one may replace while it waits. */
export interface Slot {
  /** The object that the request changes, such as a container ID. Only requests of the same name replace each other. */
  readonly name: string;
  /** The fields that the request sets. */
  readonly sets: ReadonlySet<string>;
  /** Called when a later request has replaced this one. Must not throw. */
  readonly replaced?: () => void;
}

interface Waiting {
  slot: Slot | undefined;
  action: () => Promise<unknown>;
  readonly outcome: Promise<unknown>;
  readonly start: () => Promise<void>;
}

/**
 * Runs one action at a time per key (KEP-1287: requests that arrive during a resize wait for it). Different keys run
 * concurrently. An idle key uses no memory.
 */
export class KeyedLock {
  /** The waiting actions of each held key. */
  readonly #queues = new Map<string, Waiting[]>();
  #before: (key: string) => Promise<void> | undefined = () => undefined;

  /**
   * Calls `before` with the key when a free lock is taken. The key's actions wait for the returned promise, which must
   * not reject. Undefined: nothing to wait for.
   */
  beforeActions(before: (key: string) => Promise<void> | undefined): void {
    this.#before = before;
  }

  /**
   * Runs `action` after all earlier actions for `key` have ended, with or without success. Returns its result.
   *
   * With a slot: while the action waits, a later request of the same name that sets at least the same fields replaces
   * it, and both callers get the later result. A request that sets fewer fields would lose some of the changes, so it
   * waits. The later request takes the place of the earlier one, unless an action without a slot, which may set the
   * same fields, waits after that: then it takes a place at the end, so that the newest values are set last.
   */
  run<Result>(key: string, action: () => Promise<Result>, slot?: Slot): Promise<Result> {
    const queue = this.#queues.get(key);
    const replaced = queue?.findLast((waiting) => slot !== undefined && waiting.slot?.name === slot.name);
    if (replaced !== undefined && slot !== undefined && setsAllOf(slot, replaced.slot)) {
      replaced.slot?.replaced?.();
      replaced.slot = slot;
      replaced.action = action;
      if (queue !== undefined) moveBehindOthers(queue, replaced);
      return replaced.outcome as Promise<Result>;
    }
    const waiting = waitingFor(action, slot);
    if (queue === undefined) {
      this.#queues.set(key, []);
      void this.#runQueue(key, waiting);
    } else {
      queue.push(waiting);
    }
    return waiting.outcome as Promise<Result>;
  }

  /**
   * Runs `action` as {@link run} does. Rejects with `late` when its turn has not come at the deadline, by steadyNow:
   * then it does not run. An action that has begun may take longer.
   */
  async runBy<Result>(
    key: string,
    action: () => Promise<Result>,
    deadline: number,
    late: () => Error,
  ): Promise<Result> {
    const queue = this.#queues.get(key);
    if (queue === undefined) return this.run(key, action);
    const begun = Promise.withResolvers<true>();
    const begin = (): Promise<Result> => {
      begun.resolve(true);
      return action();
    };
    const waiting = waitingFor(begin, undefined);
    queue.push(waiting);
    if ((await within(deadline - steadyNow(), begun.promise)) === undefined) {
      const place = queue.indexOf(waiting);
      if (place >= 0) {
        queue.splice(place, 1);
        throw late();
      }
    }
    return waiting.outcome as Promise<Result>;
  }

  /** Whether an action is running for a key. */
  isHeld(key: string): boolean {
    return this.#queues.has(key);
  }

  /** The number of actions that wait for a key. */
  waiting(key: string): number {
    return this.#queues.get(key)?.length ?? 0;
  }

  async #runQueue(key: string, first: Waiting): Promise<void> {
    // Without anything to wait for, the first action starts before `run` returns.
    const before = this.#before(key);
    if (before !== undefined) await before;
    for (let next: Waiting | undefined = first; next !== undefined; next = this.#queues.get(key)?.shift())
      await next.start();
    this.#queues.delete(key);
  }
}

function waitingFor(action: () => Promise<unknown>, slot: Slot | undefined): Waiting {
  let start = (): Promise<void> => Promise.resolve();
  const outcome = new Promise<unknown>((resolve, reject) => {
    // Resolves when the action has ended. Never rejects: the callers get the error through `outcome`.
    start = () => new Promise((run) => run(waiting.action())).then(resolve, reject);
  });
  const waiting: Waiting = { slot, action, outcome, start };
  return waiting;
}

/** Moves a waiting request to the end when one without a slot waits after it. */
function moveBehindOthers(queue: Waiting[], moved: Waiting): void {
  const place = queue.indexOf(moved);
  if (queue.slice(place).every(({ slot }) => slot !== undefined)) return;
  queue.splice(place, 1);
  queue.push(moved);
}

/** Whether the later request sets every field of the earlier one. */
const setsAllOf = (later: Slot, earlier: Slot | undefined): boolean =>
  earlier !== undefined && [...earlier.sets].every((field) => later.sets.has(field));
