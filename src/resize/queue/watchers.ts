import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { ResizeEvent } from './requests/index.ts';
import { ResizeWatch } from './watch.ts';

/** All watchers: a bounded number, each with a bounded number of unread events. */
export class ResizeWatchers {
  readonly #watches = new Set<ResizeWatch>();
  readonly #most: number;
  readonly #unreadEvents: number;

  constructor(bounds: { readonly watchers: number; readonly unreadEvents: number }) {
    this.#most = bounds.watchers;
    this.#unreadEvents = bounds.unreadEvents;
  }

  /** Adds a watcher, whose events start with `first`. Throws TOO_MANY_WATCHERS. */
  add(sandboxId: string | undefined, first: readonly ResizeEvent[]): ResizeWatch {
    if (this.#watches.size >= this.#most) {
      const message = `there are ${this.#most} watchers already, which is the maximum: retry once some of them have ended`;
      throw new ShimError(Code.RESOURCE_EXHAUSTED, Reason.TOO_MANY_WATCHERS, message, { found: String(this.#most) });
    }
    const capacity = this.#unreadEvents + first.length;
    const watch = new ResizeWatch(sandboxId, capacity, (ended) => this.#watches.delete(ended));
    this.#watches.add(watch);
    for (const event of first) watch.push(event);
    return watch;
  }

  publish(event: ResizeEvent): void {
    for (const watch of this.#watches) watch.push(event);
  }

  end(error: ShimError): void {
    for (const watch of [...this.#watches]) watch.end(error);
  }
}
