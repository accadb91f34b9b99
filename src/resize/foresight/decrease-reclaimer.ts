import type { DecreaseReclaimerParts, DecreaseReport, DeferredListener } from './decrease.ts';
import { DecreaseJob } from './decrease-job.ts';
import { ReclaimPacer } from './reclaim-pacer.ts';

/**
 * Reclaims memory so that kubelet applies the memory decreases it has admitted. kubelet 1.34 and later reject a decrease below
 * usage, page cache included, and make no CRI call for it. Reclaim goes on until kubelet has applied the decrease or has
 * admitted another one, or until {@link RECLAIM_PERIOD_MS} is over. It never changes a limit, and it pauses while a resize of
 * the pod is in progress.
 */
export class DecreaseReclaimer {
  readonly #parts: DecreaseReclaimerParts;
  readonly #jobs = new Map<string, DecreaseJob>();
  readonly #pacer: ReclaimPacer;
  readonly #listeners: DeferredListener[] = [];
  #isClosed = false;

  constructor(parts: DecreaseReclaimerParts) {
    this.#parts = parts;
    this.#pacer = new ReclaimPacer(parts.clock);
  }

  /** Checks all pods. To be called when kubelet's state files have changed, or pods have been added. */
  check(): void {
    if (this.#isClosed) return;
    for (const uid of this.#parts.pods()) if (!this.#jobs.has(uid)) this.#begin(uid);
    for (const job of this.#jobs.values()) job.wake();
  }

  watch(listener: DeferredListener): void {
    this.#listeners.push(listener);
  }

  podRemoved(uid: string): void {
    this.#jobs.get(uid)?.end();
    this.#jobs.delete(uid);
  }

  close(): void {
    this.#isClosed = true;
    for (const uid of [...this.#jobs.keys()]) this.podRemoved(uid);
  }

  /** Returns the state of a pod's decreases; undefined when none is blocked. */
  reportOf(uid: string): DecreaseReport | undefined {
    return this.#jobs.get(uid)?.report;
  }

  #begin(uid: string): void {
    const job = new DecreaseJob(uid, this.#parts, this.#pacer, this.#listeners);
    this.#jobs.set(uid, job);
    void job.run().then(() => {
      if (this.#jobs.get(uid) === job) this.#jobs.delete(uid);
    });
  }
}
