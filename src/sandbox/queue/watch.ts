import { Code, Reason, ShimError } from '../../core/index.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import type { ResizeEvent } from './resize-table.ts';

/** A pod to watch. */
export type WatchedPod = Pick<PodIdentity, 'sandboxId' | 'uid'>;

/**
 * Whether a watch of `watched` reports events of `pod`: it reports those of all sandboxes of a pod. Without a uid, it
 * is unknown whether two sandboxes belong to one pod.
 * @param watched undefined: all pods
 */
export const isWatched = (watched: WatchedPod | undefined, pod: WatchedPod): boolean =>
  watched === undefined || (watched.uid === '' ? watched.sandboxId === pod.sandboxId : watched.uid === pod.uid);

/**
 * The bounded queue of events of one watcher. A watcher that leaves too many events unread gets WATCHER_TOO_SLOW
 * instead, which shows that it has missed events.
 */
export class ResizeWatch implements AsyncIterableIterator<ResizeEvent> {
  #events: ResizeEvent[] = [];
  #waiting: ((result: IteratorResult<ResizeEvent> | Promise<never>) => void)[] = [];
  #end: { readonly error: ShimError | undefined } | undefined;
  #resolveEnded: () => void = () => undefined;
  /** Resolves when no more events come. */
  readonly ended = new Promise<void>((resolve) => (this.#resolveEnded = resolve));
  readonly #onEnd: (watch: ResizeWatch) => void;

  constructor(
    /** The pod to watch; undefined: all pods. */
    private readonly pod: WatchedPod | undefined,
    private readonly capacity: number,
    ended: (watch: ResizeWatch) => void,
  ) {
    this.#onEnd = ended;
  }

  push(event: ResizeEvent): void {
    if (this.#end !== undefined) return;
    if (!isWatched(this.pod, event.pod)) return;
    const reader = this.#waiting.shift();
    if (reader !== undefined) reader({ done: false, value: event });
    else if (this.#events.length < this.capacity) this.#events.push(event);
    else this.end(tooSlow(this.capacity));
  }

  /** Ends the watch and drops unread events. Readers get the error, or the end of the iteration. */
  end(error?: ShimError): void {
    if (this.#end !== undefined) return;
    this.#end = { error };
    this.#events = [];
    this.#onEnd(this);
    this.#resolveEnded();
    for (const reader of this.#waiting.splice(0)) reader(this.#final());
  }

  next(): Promise<IteratorResult<ResizeEvent>> {
    const event = this.#events.shift();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.#end !== undefined) return Promise.resolve(this.#final());
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return(): Promise<IteratorResult<ResizeEvent>> {
    this.end();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #final(): IteratorResult<ResizeEvent> | Promise<never> {
    const error = this.#end?.error;
    return error === undefined ? { done: true, value: undefined } : Promise.reject(error);
  }
}

function tooSlow(capacity: number): ShimError {
  return new ShimError(
    Code.RESOURCE_EXHAUSTED,
    Reason.WATCHER_TOO_SLOW,
    `the watcher left more than ${capacity} events unread: watch again, which starts with the current states`,
    { found: String(capacity) },
  );
}

/** All watchers: a bounded number, each with a bounded number of unread events. */
export class ResizeWatchers {
  /** The watches with their owners. */
  readonly #watches = new Map<ResizeWatch, string | undefined>();
  readonly #most: number;
  readonly #unreadEvents: number;

  constructor(bounds: { readonly watchers: number; readonly unreadEvents: number }) {
    this.#most = bounds.watchers;
    this.#unreadEvents = bounds.unreadEvents;
  }

  /**
   * Adds a watcher, whose first events are `first`. Each owner may have a share of all watches: the first owner half of
   * them, the second a quarter, and so on. Throws TOO_MANY_WATCHERS.
   * @param owner undefined for the shim itself, which is not limited to a share
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
