import type { DecreaseReclaimerParts, DecreaseReport, DeferredListener } from './decrease.ts';
import { DecreaseJob } from './decrease-job.ts';

/**
 * Brings usage below the memory decreases that kubelet has admitted, and holds it there until kubelet has applied them. kubelet
 * 1.34 and later reject a decrease below usage, page cache included, and make no CRI call for it. Ends when kubelet has admitted
 * something else, or when {@link RECLAIM_PERIOD_MS} is over. It never changes a limit, and it never holds while a request for the pod
 * is carried out.
 */
export class DecreaseReclaimer {
  readonly #parts: DecreaseReclaimerParts;
  readonly #jobs = new Map<string, DecreaseJob>();
  /** All jobs that have not ended, including those of removed pods. */
  readonly #running = new Set<DecreaseJob>();
  readonly #listeners: DeferredListener[] = [];
  #isClosed = false;

  constructor(parts: DecreaseReclaimerParts) {
    this.#parts = parts;
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

  /**
   * Ends the hold of a pod's usage. Resolves once memory.high is restored; undefined when there is no hold. Never rejects. To be
   * called with the pod's lock held: no other hold begins then.
   */
  release(uid: string): Promise<void> | undefined {
    return this.#jobs.get(uid)?.release();
  }

  podRemoved(uid: string): void {
    this.#jobs.get(uid)?.end();
    this.#jobs.delete(uid);
  }

  /** Resolves once every memory.high is restored. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const uid of [...this.#jobs.keys()]) this.podRemoved(uid);
    for (const job of this.#running) await job.release();
  }

  /** Returns the state of a pod's decreases; undefined when none is blocked. */
  reportOf(uid: string): DecreaseReport | undefined {
    return this.#jobs.get(uid)?.report;
  }

  #begin(uid: string): void {
    const job = new DecreaseJob(uid, this.#parts, this.#listeners);
    this.#jobs.set(uid, job);
    this.#running.add(job);
    void job.run().then(() => {
      if (this.#jobs.get(uid) === job) this.#jobs.delete(uid);
      this.#running.delete(job);
    });
  }
}
