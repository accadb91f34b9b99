import { Reason } from '../../core/errors/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import type { ActiveResize, ResizeTable } from './resize-table.ts';
import { type RankOf, inRetryOrder, outranks, waitsForRoom } from './retry-order.ts';

/**
 * Resizes that are due within this time are retried together with a later one in order. A longer time would retry nearly all of them
 * at each timer of one.
 */
const EARLY_MS = 20_000;
/** How many of those that rank above a resize that is due are retried with it, however late they are due: the first in order. */
export const MOST_ABOVE = 10;
/** Longest time that the admission of one resize, which may wait for its pod's lock, delays the others. */
const ADMISSION_MS = 5000;

export interface RetriesParts {
  readonly table: Pick<ResizeTable, 'allActive'>;
  readonly clock: Clock;
  readonly rankOf: RankOf;
  /** Runs one attempt. Calls `onAdmitted` when it is clear that the resize fits. Never rejects. */
  readonly attempt: (active: ActiveResize, onAdmitted?: () => void) => Promise<void>;
  readonly isStopping: () => boolean;
}

/**
 * The order of retries. Resizes that wait for room on the node are admitted one after the other, so that the first in order gets the room
 * that others have freed. Each is tried once; one that still does not fit does not delay those after it. All others are
 * independent, and run concurrently.
 */
export class Retries {
  readonly #parts: RetriesParts;
  readonly #waiting = new Set<ActiveResize>();
  #running: Promise<void> | undefined;
  /** Room was freed while an attempt was in progress, which may not have seen it. */
  #wasFreed = false;

  constructor(parts: RetriesParts) {
    this.#parts = parts;
  }

  /**
   * Retries what is due by now, in order. With a resize that waits for room, the first that rank above it are retried too, and of
   * those that are only older the ones that are due soon: it must not get room that one of them needs. Room may have become free
   * without a notice, as when a pod ends.
   */
  due(active: ActiveResize): void {
    const { clock, rankOf, table } = this.#parts;
    const now = clock.now();
    const isDue = (one: ActiveResize): boolean => one === active || (one.dueAt ?? Infinity) <= now;
    const isSoon = (one: ActiveResize): boolean => (one.dueAt ?? now) <= now + EARLY_MS;
    const deferred = inRetryOrder(
      table.allActive.filter(({ resize }) => resize.state === 'Deferred'),
      rankOf,
    );
    for (const other of deferred.filter((one) => isDue(one) && !waitsForRoom(one))) {
      other.stopTimer();
      void this.#parts.attempt(other);
    }
    const waiting = deferred.filter(waitsForRoom);
    const last = waiting.findLast(isDue);
    if (last === undefined) return;
    const rank = rankOf(last.resize.pod);
    const isTried = (one: ActiveResize, at: number): boolean =>
      isDue(one) || isSoon(one) || (at < MOST_ABOVE && outranks(rankOf(one.resize.pod), rank));
    this.#add(waiting.slice(0, waiting.indexOf(last) + 1).filter(isTried));
  }

  /** Retries what is known to wait for room. */
  roomFreed(): void {
    this.#wasFreed = true;
    this.#add(
      this.#parts.table.allActive.filter(
        ({ resize: { state, reason } }) => state === 'Deferred' && reason === Reason.NODE_FULL,
      ),
    );
  }

  /** Resolves when no resize waits to be admitted. */
  async idle(): Promise<void> {
    await this.#running;
  }

  #add(resizes: readonly ActiveResize[]): void {
    for (const active of resizes) {
      active.stopTimer();
      this.#waiting.add(active);
    }
    this.#start();
  }

  #start(): void {
    if (this.#waiting.size === 0 || this.#parts.isStopping()) return;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // Added since the last one was tried: it has no timer any more.
      this.#start();
    });
  }

  async #run(): Promise<void> {
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const active = next;
      this.#waiting.delete(active);
      await this.#untilAdmitted(active);
      if (this.#wasFreed && waitsForRoom(active)) this.#add([active]);
    }
    this.#waiting.clear();
  }

  /** Runs an attempt. Resolves when the resize is admitted or does not fit, or when this takes too long. */
  async #untilAdmitted(active: ActiveResize): Promise<void> {
    this.#wasFreed = false;
    let stopTimer: () => void = () => undefined;
    await new Promise<void>((resolve) => {
      stopTimer = this.#parts.clock.after(ADMISSION_MS, resolve);
      void this.#parts.attempt(active, resolve).then(resolve);
    });
    stopTimer();
  }

  /** Returns the first in order. Some may have been cancelled or superseded while they waited. */
  #next(): ActiveResize | undefined {
    if (this.#parts.isStopping()) return undefined;
    return inRetryOrder([...this.#waiting].filter(waitsForRoom), this.#parts.rankOf)[0];
  }
}
