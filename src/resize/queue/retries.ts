import { Reason } from '../../core/errors/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import type { ActiveResize, ResizeTable } from './resize-table.ts';
import { type RankOf, compareForRetry, waitsForRoom } from './retry-order.ts';

export interface RetriesParts {
  readonly table: Pick<ResizeTable, 'allActive'>;
  readonly clock: Pick<Clock, 'now'>;
  readonly rankOf: RankOf;
  /** Runs one attempt. Calls `onAdmitted` when it is clear that the resize fits. Never rejects. */
  readonly attempt: (active: ActiveResize, onAdmitted?: () => void) => Promise<void>;
  readonly isStopping: () => boolean;
}

/**
 * The order of retries. Resizes that wait for room on the node are admitted one after the other, so that the first in order gets the room
 * that others have freed. Each is tried once; one that still does not fit does not hold up those after it. All others are
 * independent, and run concurrently.
 */
export class Retries {
  readonly #parts: RetriesParts;
  readonly #compare: (one: ActiveResize, other: ActiveResize) => number;
  readonly #waiting = new Set<ActiveResize>();
  #running: Promise<void> | undefined;
  /** Room was freed while an attempt was in progress, which may not have seen it. */
  #wasFreed = false;

  constructor(parts: RetriesParts) {
    this.#parts = parts;
    this.#compare = compareForRetry(parts.rankOf);
  }

  /**
   * Retries what is due by now, in order. With a resize that waits for room, those before it in order are retried too, even if they are
   * not due: it must not get room that one of them needs.
   */
  due(active: ActiveResize): void {
    const now = this.#parts.clock.now();
    const deferred = this.#parts.table.allActive.filter(({ resize }) => resize.state === 'Deferred');
    const due = deferred
      .filter((other) => other === active || (other.resize.nextTryAt ?? Infinity) <= now)
      .sort(this.#compare);
    for (const other of due.filter((one) => !waitsForRoom(one))) {
      other.stopTimer();
      void this.#parts.attempt(other);
    }
    const last = due.filter(waitsForRoom).at(-1);
    if (last === undefined) return;
    this.#add(deferred.filter((other) => waitsForRoom(other) && this.#compare(other, last) <= 0));
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

  /** Runs an attempt. Resolves when the resize is admitted, or does not fit. */
  #untilAdmitted(active: ActiveResize): Promise<void> {
    this.#wasFreed = false;
    return new Promise((resolve) => void this.#parts.attempt(active, resolve).then(resolve));
  }

  /** Returns the first in order. Some may have been cancelled or superseded while they waited. */
  #next(): ActiveResize | undefined {
    if (this.#parts.isStopping()) return undefined;
    return [...this.#waiting].filter(waitsForRoom).sort(this.#compare)[0];
  }
}
