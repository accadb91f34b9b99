import { randomUUID } from 'node:crypto';
import { Code, Reason, ShimError, tracesOf } from '../../core/errors/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import { type AskedPod, type MemoryRequests, readAsked } from './request.ts';
import { retryDelay } from './backoff.ts';
import { type Live, ResizeBook } from './resize-table.ts';
import { RecordKeeper } from './record-writer.ts';
import { KeptOfPods } from './stored-values.ts';
import { type DeferredRecord, type ResizeRecord, type ResizeStore, deferredRecord } from './records.ts';
import { type CancelReason, type RequestsAround, type Resize, type ResizeCounts, hasEnded } from './resize.ts';
import type { ResizeWatch } from './watch.ts';
import { ResizeWatchers, stateEvent } from './watchers.ts';
import {
  type ResizeOutcome,
  type ResizePod,
  type ResizeState,
  type StepRecord,
  explained,
  failureOf,
  fitsLater,
  passes,
} from '../model/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

export interface ResizesParts {
  readonly resizePod: ResizePod;
  readonly store: ResizeStore;
  readonly clock: Clock;
  /** 0 to 1, as Math.random: spreads the later tries. */
  readonly random: () => number;
  readonly log: Log;
  readonly counters?: Counters;
  /** Those of {@link defaultBounds} where they are not given. */
  readonly bounds?: Partial<ResizeBounds>;
}

export interface ResizeBounds {
  /** Resizes that have not ended, over all pods. */
  readonly live: number;
  /** Resizes that have ended, kept for later questions. */
  readonly ended: number;
  readonly watchers: number;
  /** Events that a watcher may leave unread. */
  readonly unreadEvents: number;
}

export const defaultBounds: ResizeBounds = { live: 1024, ended: 256, watchers: 64, unreadEvents: 1024 };

export interface ResizeTerms {
  /** Whether it is tried again when it does not fit yet. */
  readonly defer: boolean;
  /** How long each try may take, in milliseconds. */
  readonly timeoutMs: number;
  /** When the first try has to have ended, in milliseconds since the epoch. */
  readonly deadline: number;
}

/**
 * Every resize of a whole pod, from the question to its end. Those that do not fit yet are tried again until they do, are
 * superseded or cancelled, or their pod goes; they outlive the shim. What a try does is the core's affair.
 */
export class Resizes {
  readonly #parts: ResizesParts;
  readonly #bounds: ResizeBounds;
  readonly #book: ResizeBook;
  readonly #keeper: RecordKeeper;
  readonly #watchers: ResizeWatchers;
  readonly #kept: KeptOfPods;
  readonly #counts = { proposed: 0, infeasible: 0, completed: 0, canceled: 0 };
  #proposed = 0;
  #stopping = false;

  constructor(parts: ResizesParts) {
    const { store, clock, log } = parts;
    this.#parts = parts;
    this.#bounds = { ...defaultBounds, ...parts.bounds };
    this.#book = new ResizeBook(this.#bounds.ended);
    this.#watchers = new ResizeWatchers(this.#bounds);
    this.#kept = new KeptOfPods(log);
    this.#keeper = new RecordKeeper({ store, clock, log, recordsOf: (podUid) => this.#recordsOf(podUid) });
  }

  /** In steady state, nothing under way or deferred, proposed is the sum of the others. */
  get counts(): ResizeCounts {
    return { ...this.#counts };
  }

  /** The states of those that have not ended. */
  get unfinished(): readonly ResizeState[] {
    return this.#book.allLive.map(({ resize }) => resize.state);
  }

  /** Throws UNKNOWN_RESIZE. */
  get(id: string): Resize {
    const resize = this.#book.get(id);
    if (resize !== undefined) return resize;
    const asked = id.slice(0, 64);
    const message = `no resize with id ${JSON.stringify(asked)}: it is unknown or no longer stored`;
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_RESIZE, message, { asked });
  }

  /** The newest resize of a pod, as long as it is kept. */
  newestOf(sandboxId: string): Resize | undefined {
    return this.#book.newestOf(sandboxId);
  }

  /** The requests of memory that have been carried out. */
  memoryRequestsOf(sandboxId: string): MemoryRequests {
    return this.#kept.requests.of(sandboxId);
  }

  /** What the pod's annotations in Kubernetes have last asked for, by volume. */
  annotationsOf(sandboxId: string): Readonly<Record<string, string>> {
    return this.#kept.annotations.of(sandboxId);
  }

  /** Keeps that the pod's annotations have asked for this, for {@link annotationsOf} of this shim and the next. Never rejects. */
  async storeAnnotations(pod: PodIdentity, volumes: Readonly<Record<string, string>>): Promise<void> {
    this.#kept.annotations.add(pod, volumes);
    await this.#keeper.update(pod.uid);
  }

  /** What would be done; nothing is kept or counted. Rejects as the core does, or as {@link readAsked} throws. */
  async dryRun(
    { sandboxId }: PodIdentity,
    asked: AskedPod,
    deadline: number,
  ): Promise<ResizeOutcome & { readonly memoryRequests: RequestsAround }> {
    const before = this.#kept.requests.of(sandboxId);
    const { desired, memoryRequests } = readAsked(asked, before);
    try {
      const outcome = await this.#parts.resizePod(sandboxId, desired, { dryRun: true, deadline });
      return { ...outcome, memoryRequests: { before, after: this.#kept.requests.with(sandboxId, memoryRequests) } };
    } catch (error) {
      throw failureOf(error);
    }
  }

  /**
   * Carries a resize out. Resolves when it is Completed, Deferred, or Canceled by a newer one or a caller. Rejects when it
   * is Infeasible, does not fit yet and is not to be tried again, or its pod has gone: with the core's ShimError and the resize's id in its context; before there is an
   * id with INVALID_VALUE, INVALID_ANNOTATION, TOO_MANY_RESIZES or STOPPING.
   */
  async resize(pod: PodIdentity, asked: AskedPod, terms: ResizeTerms): Promise<Resize> {
    const live = this.#propose(pod, asked, terms);
    const first = this.#first(live, terms.deadline);
    live.attempt = first.then(() => undefined);
    const failure = await first;
    const { state, reason, defer } = live.resize;
    const isRefused = state === 'Infeasible' || (state === 'Canceled' && !defer);
    if (isRefused || reason === ('POD_GONE' satisfies CancelReason)) throw failure;
    return live.resize;
  }

  /**
   * Ends a resize that is deferred. One that is under way is not tried again; this resolves once its try has ended. Gives
   * the resize as it is then. Throws UNKNOWN_RESIZE.
   */
  async cancel(id: string): Promise<Resize> {
    const live = this.#book.live(id);
    if (live === undefined) return this.get(id);
    live.cancelled = true;
    if (live.resize.state === 'Deferred') await this.#end(live, 'Canceled', cancelled);
    else await live.attempt;
    return live.resize;
  }

  /**
   * What happens from now on, of one pod or of all; before that the state of each resize that has not ended. Throws
   * TOO_MANY_WATCHERS or STOPPING.
   */
  watch(sandboxId?: string): ResizeWatch {
    if (this.#stopping) throw stopping();
    return this.#watchers.add(
      sandboxId,
      this.#book.allLive.map(({ resize }) => resize),
    );
  }

  /** Ends what waits for a pod that has gone, and forgets what was kept for it. */
  podRemoved(sandboxId: string): void {
    const uids = new Set(this.#kept.forget(sandboxId));
    for (const live of this.#book.liveOfPod(sandboxId)) {
      uids.add(live.resize.pod.uid);
      live.podGone = true;
      if (live.resize.state === 'Deferred') this.#enter(live, 'Canceled', podGone);
    }
    for (const uid of uids) void this.#keeper.update(uid);
  }

  /**
   * Takes up what an earlier shim has left. Resizes whose pod does not exist any more end; where `exists` rejects they stay,
   * and their next try will tell. To be called once. Rejects when the store cannot be read.
   */
  async restore(exists: (sandboxId: string) => Promise<boolean>): Promise<void> {
    const { sandboxes, deferred } = await this.#kept.restore(this.#parts.store);
    for (const record of deferred) this.#resume(record);
    for (const sandboxId of sandboxes) if (!(await exists(sandboxId).catch(() => true))) this.podRemoved(sandboxId);
  }

  /** Starts no more tries, ends all watches, and waits for the tries under way. What is deferred is the next shim's. */
  async close(): Promise<void> {
    this.#stopping = true;
    for (const live of this.#book.allLive) live.stopTimer();
    await Promise.all(this.#book.allLive.map(({ attempt }) => attempt));
    this.#watchers.end(stopping());
    this.#keeper.close();
  }

  #propose(pod: PodIdentity, asked: AskedPod, { defer, timeoutMs }: ResizeTerms): Live {
    try {
      if (this.#stopping) throw stopping();
      if (this.#book.liveCount >= this.#bounds.live) throw tooMany(this.#bounds.live);
      readAsked(asked, this.#kept.requests.of(pod.sandboxId));
    } catch (error) {
      this.#count('Proposed');
      this.#count('Infeasible');
      throw error;
    }
    return this.#add({ id: randomUUID(), pod, asked, defer, timeoutMs, createdAt: this.#parts.clock.now() });
  }

  #add(given: Pick<Resize, 'id' | 'pod' | 'asked' | 'defer' | 'timeoutMs' | 'createdAt'>): Live {
    const why = { reason: undefined, message: undefined };
    const noValues = { before: undefined, after: undefined, memoryRequests: undefined };
    const nothingDone = { steps: [], ...noValues, tries: 0, nextTryAt: undefined };
    const changedAt = this.#parts.clock.now();
    const live: Live = {
      resize: { ...given, state: 'Proposed', ...why, ...nothingDone, changedAt },
      order: (this.#proposed += 1),
      attempt: Promise.resolve(),
      wasDeferred: false,
      cancelled: false,
      podGone: false,
      stopTimer: () => undefined,
    };
    this.#count('Proposed');
    this.#book.add(live);
    this.#watchers.publish(stateEvent(live.resize));
    return live;
  }

  /** The first try, of which its caller is told; one that may be deferred is kept before. Gives what went wrong. */
  async #first(live: Live, deadline: number): Promise<unknown> {
    if (!live.resize.defer) return this.#try(live, deadline);
    try {
      await this.#keeper.save(live.resize.pod.uid);
    } catch (error) {
      const failure = failureOf(error, live.resize.id);
      await this.#end(live, 'Infeasible', explained(failure));
      return failure;
    }
    if (!live.cancelled) return this.#try(live, deadline);
    return this.#end(live, 'Canceled', cancelled);
  }

  /** Never rejects: gives what went wrong. */
  async #try(live: Live, deadline: number): Promise<unknown> {
    const { id, pod, asked, tries } = live.resize;
    const steps: StepRecord[] = [];
    this.#enter(live, 'InProgress', { ...noReason, steps, tries: tries + 1, nextTryAt: undefined });
    const onStep = (record: StepRecord): void => {
      steps.push(record);
      this.#watchers.publish({ resize: id, pod, at: this.#parts.clock.now(), what: { kind: 'step', record } });
    };
    try {
      const { desired, memoryRequests } = readAsked(asked, this.#kept.requests.of(pod.sandboxId));
      const outcome = await this.#parts.resizePod(pod.sandboxId, desired, { dryRun: false, deadline, onStep });
      await this.#complete(live, outcome, memoryRequests);
      return undefined;
    } catch (error) {
      const failure = failureOf(error, id);
      await this.#failed(live, failure);
      return failure;
    }
  }

  async #complete(live: Live, { steps, before, after }: ResizeOutcome, asked: MemoryRequests): Promise<void> {
    const { pod, defer } = live.resize;
    const memoryRequests = {
      before: this.#kept.requests.of(pod.sandboxId),
      after: this.#kept.requests.with(pod.sandboxId, asked),
    };
    const keeps = !live.podGone && this.#kept.requests.add(pod, asked);
    const supersedes = this.#supersedeOlder(live);
    this.#enter(live, 'Completed', { steps, before, after, memoryRequests });
    if (keeps || supersedes || defer) await this.#keeper.update(pod.uid);
  }

  async #failed(live: Live, failure: unknown): Promise<void> {
    const { defer } = live.resize;
    const fits = fitsLater(failure);
    const again = defer && (fits || (live.wasDeferred && passes(failure)));
    const gone = live.podGone || (failure instanceof ShimError && failure.code === Code.NOT_FOUND);
    if (gone) return this.#end(live, 'Canceled', podGone);
    if (!again && fits) this.#notDeferred(live, explained(failure));
    else if (!again) await this.#end(live, 'Infeasible', explained(failure));
    else await this.#wait(live, failure);
  }

  /** It is tried again, unless it has been overtaken meanwhile. */
  async #wait(live: Live, failure: unknown): Promise<void> {
    if (live.cancelled) return this.#end(live, 'Canceled', cancelled);
    const newer = this.#book.settledAfter(live);
    if (newer !== undefined) return this.#end(live, 'Canceled', superseded(newer));
    const supersedes = this.#supersedeOlder(live);
    this.#deferFor(live, explained(failure));
    if (supersedes) await this.#keeper.update(live.resize.pod.uid);
  }

  /** What does not fit yet is Deferred, whoever asks; of a caller who does not wait for it that is the end. */
  #notDeferred(live: Live, { reason, message }: { readonly reason: string; readonly message: string }): void {
    this.#enter(live, 'Deferred', { reason, message });
    this.#enter(live, 'Canceled', { reason, message: `${message}; the request does not allow a retry (defer)` });
  }

  /** A newer resize that is carried out or deferred takes the place of those that wait. One that is refused does not. */
  #supersedeOlder(live: Live): boolean {
    this.#book.settle(live);
    const older = this.#book
      .liveOfPod(live.resize.pod.sandboxId)
      .filter((other) => other.order < live.order && other.resize.state === 'Deferred');
    for (const other of older) this.#enter(other, 'Canceled', superseded(live.resize.id));
    return older.length > 0;
  }

  #deferFor(live: Live, why: { readonly reason: string; readonly message: string }): void {
    live.wasDeferred = true;
    const delay = retryDelay(live.resize.tries, this.#parts.random(), why.reason);
    this.#enter(live, 'Deferred', { ...why, nextTryAt: this.#parts.clock.now() + delay });
    if (!this.#stopping) live.stopTimer = this.#parts.clock.after(delay, () => this.#again(live, why));
  }

  #again(live: Live, why: { readonly reason: string; readonly message: string }): void {
    const { id, pod, timeoutMs } = live.resize;
    // Behind a newer one in the pod's queue the older values would be the last.
    if (this.#book.liveOfPod(pod.sandboxId).some((other) => other.order > live.order)) {
      this.#deferFor(live, why);
      return;
    }
    live.attempt = this.#try(live, this.#parts.clock.now() + timeoutMs).then((failure) => {
      const { state, reason, tries } = live.resize;
      const fields = { resize: id, pod: pod.sandboxId, state, reason, tries };
      this.#parts.log.info(fields, 'deferred resize retried');
      if (reason === Reason.INTERNAL) {
        this.#parts.log.error({ ...fields, ...tracesOf(failure) }, 'resize failed because of an internal error');
      }
    });
  }

  /** An end, and what is kept follows it. Gives nothing, so that callers can end with it. */
  async #end(live: Live, state: ResizeState, why: Pick<Resize, 'reason' | 'message'>): Promise<undefined> {
    this.#enter(live, state, why);
    if (live.resize.defer) await this.#keeper.update(live.resize.pod.uid);
    return undefined;
  }

  #enter(live: Live, state: ResizeState, changes: Partial<Resize>): void {
    live.stopTimer();
    const next = hasEnded(state) ? { nextTryAt: undefined } : {};
    live.resize = { ...live.resize, ...changes, ...next, state, changedAt: this.#parts.clock.now() };
    this.#count(state);
    if (hasEnded(state)) this.#book.end(live.resize);
    this.#watchers.publish(stateEvent(live.resize));
  }

  #count(state: ResizeState): void {
    if (state === 'Proposed') this.#counts.proposed += 1;
    if (state === 'Infeasible') this.#counts.infeasible += 1;
    if (state === 'Completed') this.#counts.completed += 1;
    if (state === 'Canceled') this.#counts.canceled += 1;
    this.#parts.counters?.resizeState(state);
  }

  #resume({ id, pod, asked, timeoutMs, createdAt }: DeferredRecord): void {
    const live = this.#add({ id, pod, asked, defer: true, timeoutMs, createdAt });
    this.#deferFor(live, {
      reason: 'RESTARTED',
      message: 'restored after a restart of the shim; a retry is scheduled',
    });
  }

  #recordsOf(podUid: string): readonly ResizeRecord[] {
    return [...this.#book.deferringOf(podUid).map(deferredRecord), ...this.#kept.recordsOf(podUid)];
  }
}

const noReason = { reason: undefined, message: undefined };
const cancelled = { reason: 'CANCELLED' satisfies CancelReason, message: 'cancelled by a caller' };
const podGone = { reason: 'POD_GONE' satisfies CancelReason, message: 'the pod is gone' };
const superseded = (newer: string) => ({
  reason: 'SUPERSEDED' satisfies CancelReason,
  message: `superseded by resize ${newer}`,
});

function tooMany(most: number): ShimError {
  const message = `${most} resizes are in progress or deferred, which is the maximum: retry once some of them have ended`;
  return new ShimError(Code.RESOURCE_EXHAUSTED, Reason.TOO_MANY_RESIZES, message, { found: String(most) });
}

const stopping = (): ShimError => new ShimError(Code.UNAVAILABLE, Reason.STOPPING, 'the shim is stopping');
