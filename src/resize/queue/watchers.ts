import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { Resize, ResizeEvent } from './requests/index.ts';
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

  /** Adds a watcher, whose events start with the states of `present`. Throws TOO_MANY_WATCHERS. */
  add(sandboxId: string | undefined, present: readonly Resize[]): ResizeWatch {
    if (this.#watches.size >= this.#most) {
      const message = `there are ${this.#most} watchers already, which is the maximum: retry once some of them have ended`;
      throw new ShimError(Code.RESOURCE_EXHAUSTED, Reason.TOO_MANY_WATCHERS, message, { found: String(this.#most) });
    }
    const capacity = this.#unreadEvents + present.length;
    const watch = new ResizeWatch(sandboxId, capacity, (ended) => this.#watches.delete(ended));
    this.#watches.add(watch);
    for (const resize of present) watch.push(stateEvent(resize));
    return watch;
  }

  publish(event: ResizeEvent): void {
    for (const watch of this.#watches) watch.push(event);
  }

  end(error: ShimError): void {
    for (const watch of [...this.#watches]) watch.end(error);
  }
}

/** Returns the event for the present state of a resize. */
export function stateEvent({ id, pod, state, reason, message, changedAt }: Resize): ResizeEvent {
  return { resize: id, pod, at: changedAt, what: { kind: 'state', state, reason, message } };
}
