import { Code, Reason, ShimError } from '../../../core/errors/index.ts';
import type { ResizeEvent } from '../requests/index.ts';
import { ResizeWatch, type WatchedPod } from './watch.ts';

/** All watchers: a bounded number, each with a bounded number of unread events. */
export class ResizeWatchers {
  /** With their owners. */
  readonly #watches = new Map<ResizeWatch, string | undefined>();
  readonly #most: number;
  readonly #unreadEvents: number;

  constructor(bounds: { readonly watchers: number; readonly unreadEvents: number }) {
    this.#most = bounds.watchers;
    this.#unreadEvents = bounds.unreadEvents;
  }

  /**
   * Adds a watcher, whose events start with `first`. An owner has no more watches than it leaves to the others: half of all
   * if it is the first, a quarter if it is the second, and so on. Throws TOO_MANY_WATCHERS.
   * @param owner undefined for the shim itself, which has no share
   */
  add(pod: WatchedPod | undefined, first: readonly ResizeEvent[], owner?: string): ResizeWatch {
    this.#assertRoom(owner);
    const capacity = this.#unreadEvents + first.length;
    const watch = new ResizeWatch(pod, capacity, (ended) => this.#watches.delete(ended));
    this.#watches.set(watch, owner);
    for (const event of first) watch.push(event);
    return watch;
  }

  publish(event: ResizeEvent): void {
    for (const watch of this.#watches.keys()) watch.push(event);
  }

  end(error: ShimError): void {
    for (const watch of [...this.#watches.keys()]) watch.end(error);
  }

  #assertRoom(owner: string | undefined): void {
    const all = this.#watches.size;
    if (all >= this.#most)
      throw tooMany(`there are ${all} watchers already, which is the maximum: retry once some of them have ended`, all);
    if (owner === undefined) return;
    const own = [...this.#watches.values()].filter((of) => of === owner).length;
    if (own >= this.#most - all)
      throw tooMany(
        `this client has ${own} watchers already, which is its share of ${this.#most}: end one of them`,
        own,
      );
  }
}

const tooMany = (message: string, found: number): ShimError =>
  new ShimError(Code.RESOURCE_EXHAUSTED, Reason.TOO_MANY_WATCHERS, message, { found: String(found) });
