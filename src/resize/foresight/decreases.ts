import type { DecreaseHelpParts, DecreaseReport, DeferredListener } from './decrease.ts';
import { DecreaseJob } from './decrease-job.ts';
import { Turns } from './turns.ts';

/**
 * Helps kubelet to lower memory limits. From 1.34 on it refuses to when more is in use, page cache included, and does not
 * even call: so what can be reclaimed is, until kubelet has done it, has admitted something else, or the time is up. Never changes a
 * limit, and leaves a pod alone while a resize of it is under way.
 */
export class DecreaseHelp {
  readonly #parts: DecreaseHelpParts;
  readonly #jobs = new Map<string, DecreaseJob>();
  readonly #turns: Turns;
  readonly #listeners: DeferredListener[] = [];
  #isClosed = false;

  constructor(parts: DecreaseHelpParts) {
    this.#parts = parts;
    this.#turns = new Turns(parts.clock);
  }

  /** kubelet has written something, or pods have come. */
  look(): void {
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

  /** How it stands; undefined when nothing is in the way of this pod. */
  reportOf(uid: string): DecreaseReport | undefined {
    return this.#jobs.get(uid)?.report;
  }

  #begin(uid: string): void {
    const job = new DecreaseJob(uid, this.#parts, this.#turns, this.#listeners);
    this.#jobs.set(uid, job);
    void job.run().then(() => {
      if (this.#jobs.get(uid) === job) this.#jobs.delete(uid);
    });
  }
}
