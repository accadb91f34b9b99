import type { Node } from '../node.ts';
import type { Registry } from '../pods/registry.ts';
import type { UsageSource } from './comparison.ts';
import type { DecreaseReclaimerOptions, DecreaseReport, DeferredListener } from './decrease.ts';
import { DecreaseJob } from './decrease-job.ts';

/** Maximum time that a shutdown waits for all holds together, in milliseconds. */
export const CLOSE_MS = 1000;

/**
 * Brings usage below the memory decreases that kubelet has admitted, and holds it there until kubelet has applied them.
 * kubelet 1.34 and later reject a decrease below usage, page cache included, and make no CRI call for it. Ends when
 * kubelet has admitted something else, or when {@link RECLAIM_PERIOD_MS} is over. It never changes a limit, and never
 * holds while a request for the pod runs.
 */
export class DecreaseReclaimer {
  /** By pod, with its entries when it was last woken. */
  readonly #jobs = new Map<string, { readonly job: DecreaseJob; readonly entries: readonly unknown[] }>();
  /** All jobs that have not ended, including those of removed pods. */
  readonly #running = new Set<DecreaseJob>();
  readonly #listeners: DeferredListener[] = [];
  /** Called when comparisons are opened. */
  readonly #opening = new Set<() => void>();
  #isClosed = false;
  #isOpen = false;

  constructor(private readonly options: DecreaseReclaimerOptions) {}

  /**
   * Checks the pods whose entries have changed: kubelet writes the entries of all pods when one changes. To be called
   * when kubelet's state files have changed.
   */
  check(): void {
    if (this.#isClosed) return;
    for (const uid of this.options.pods()) if (!this.#jobs.has(uid)) this.#begin(uid);
    for (const { job, entries } of this.#jobs.values()) {
      const now = this.options.entries(job.uid);
      if (now.every((entry, at) => entry === entries[at])) continue;
      this.#jobs.set(job.uid, { job, entries: now });
      job.wake();
    }
  }

  /** Checks an added pod or one with a new sandbox. Does not look at others: a start adds all pods of the node. */
  podAdded(uid: string): void {
    this.#beginIfPending(uid);
    this.#jobs.get(uid)?.job.wake();
  }

  /**
   * Checks a pod. Returns a promise that resolves when kubelet may compare its usage with the limits that it has
   * admitted; undefined if none is pending. Never rejects.
   * @param read resolves once kubelet's checkpoints are read; undefined if they are
   */
  comparable(uid: string, source: UsageSource, read?: Promise<void>): Promise<void> | undefined {
    if (this.#isOpen) return undefined;
    if (read !== undefined) return this.#orOpen(read).then(() => this.comparable(uid, source));
    this.#beginIfPending(uid);
    return this.#jobs.get(uid)?.job.comparable(source);
  }

  /** Records that the runtime has reported the usage of a pod to kubelet: kubelet does not use cAdvisor's then. */
  measuredByRuntime(uid: string): void {
    this.#jobs.get(uid)?.job.measuredByRuntime();
  }

  /** Allows kubelet to compare from now on, so that waiting calls do not delay the end of the process. */
  openComparisons(): void {
    this.#isOpen = true;
    for (const open of this.#opening) open();
    for (const job of this.#running) job.openComparison();
  }

  /** Waits for `work`, but no longer than until comparisons are open. */
  async #orOpen(work: Promise<void>): Promise<void> {
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => this.#opening.add((open = resolve)));
    await Promise.race([work, opened]);
    this.#opening.delete(open);
  }

  /** Reports deferred decreases to `listener`: present ones immediately, others when they are deferred. */
  watch(listener: DeferredListener): void {
    this.#listeners.push(listener);
    // Jobs begin while the shim recovers, before there is a listener.
    for (const { job } of this.#jobs.values()) if (job.report?.state === 'Deferred') listener(job.uid, job.report);
  }

  /**
   * Ends the hold of a pod's usage. Resolves once memory.high is restored; undefined when there is no hold. Never
   * rejects. To be called with the pod's lock held: no other hold begins then.
   */
  release(uid: string): Promise<void> | undefined {
    return this.#jobs.get(uid)?.job.release();
  }

  podRemoved(uid: string): void {
    this.#jobs.get(uid)?.job.end();
    this.#jobs.delete(uid);
  }

  /**
   * Resolves once every memory.high is restored and the journal records it, but within {@link CLOSE_MS}: after a disk
   * that hangs, the next start recovers the rest. Never rejects.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const uid of [...this.#jobs.keys()]) this.podRemoved(uid);
    const { clock, log } = this.options;
    const left = new Set(this.#running);
    const ended = [...left].map(async (job) => {
      await job.release();
      left.delete(job);
    });
    let cancel = (): void => undefined;
    const over = new Promise<void>((resolve) => (cancel = clock.after(CLOSE_MS, resolve)));
    await Promise.race([Promise.all(ended), over]);
    cancel();
    if (left.size > 0)
      log.warn({ pods: left.size, timeoutMs: CLOSE_MS }, 'holds of memory usage not ended: the disk does not answer');
  }

  /** Returns the state of a pod's decreases; undefined when none is blocked. */
  reportOf(uid: string): DecreaseReport | undefined {
    return this.#jobs.get(uid)?.job.report;
  }

  #beginIfPending(uid: string): void {
    if (!this.#isClosed && !this.#jobs.has(uid) && this.options.isPending(uid)) this.#begin(uid);
  }

  #begin(uid: string): void {
    const job = new DecreaseJob(uid, this.options, this.#listeners);
    this.#jobs.set(uid, { job, entries: this.options.entries(uid) });
    this.#running.add(job);
    void job.run().then(() => {
      if (this.#jobs.get(uid)?.job === job) this.#jobs.delete(uid);
      this.#running.delete(job);
    });
  }
}

/**
 * Returns a promise that resolves when kubelet may compare the usage of a pod with the limits that it has admitted;
 * undefined if it may at once. The promise never rejects.
 */
export function awaitComparable(
  { registry, kubelet }: Node,
  decreaseReclaimer: DecreaseReclaimer,
  sandboxId: string,
  source: UsageSource,
): Promise<void> | undefined {
  const uid = uidOf(registry, sandboxId);
  if (uid === undefined) return undefined;
  // kubelet compares right after it has written what it admits.
  return decreaseReclaimer.comparable(uid, source, kubelet.refreshed());
}

/** Records that the runtime has reported the usage of a pod to kubelet. */
export function measuredByRuntime({ registry }: Node, decreaseReclaimer: DecreaseReclaimer, sandboxId: string): void {
  const uid = uidOf(registry, sandboxId);
  if (uid !== undefined) decreaseReclaimer.measuredByRuntime(uid);
}

const uidOf = (registry: Registry, sandboxId: string): string | undefined =>
  registry.pods.find((known) => known.sandboxId === sandboxId)?.metadata.uid;
