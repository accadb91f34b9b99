import { type Clock, Code, type Counters, type Log, Reason, ShimError } from '../../core/index.ts';
import { ResizeHistory } from '../history/history.ts';
import { apiRequester, type HistoryEntry, type Requester, requesterText } from '../history/history-entry.ts';
import { NewestValues } from '../history/newest-values.ts';
import { type Explanation, explained, failureOf, fitsLater } from '../plan/failures.ts';
import type { MemoryRequests, ResizeOutcome, ResizePod, ResizeState } from '../plan/resize-request.ts';
import type { StepRecord } from '../plan/step.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import { deferredRecord, RecordWriter, type ResizeRecord, type ResizeStore } from './records.ts';
import { type RequestedPod, readRequested } from './request.ts';
import { ResizeRunner } from './resize-runner.ts';
import {
  type ActiveResize,
  type CancelReason,
  historyEntry,
  type RequestsAround,
  type Resize,
  type ResizeCounts,
  type ResizeEvent,
  ResizeTable,
  SHORTEST_BEGINNING,
  stateEvent,
} from './resize-table.ts';
import { equalRanks, type RankOf } from './retries.ts';
import { type KubeletRequests, StoredPodRecords } from './stored-pod-records.ts';
import { isWatched, type ResizeWatch, ResizeWatchers, type WatchedPod } from './watch.ts';

export interface ResizesOptions {
  readonly resizePod: ResizePod;
  readonly store: ResizeStore;
  /** The order of all requests, those of the CRI included. Default: the resizes alone. */
  readonly newest?: NewestValues;
  /** All resizes, those of the CRI included. Default: the resizes alone. */
  readonly history?: ResizeHistory;
  /** The ranks of pods for the order of retries. Default: all are equal. */
  readonly rankOf?: RankOf;
  /** Returns the newest sandbox of a pod. Default: the sandbox in the request. */
  readonly newestSandbox?: (podUid: string) => PodIdentity | undefined;
  /** Default: kubelet's requests are not known. */
  readonly kubeletRequests?: KubeletRequests;
  readonly clock: Clock;
  /** Returns 0 to 1, like Math.random: spreads the retries. */
  readonly random: () => number;
  readonly log: Log;
  readonly counters?: Counters;
  /** Default: {@link defaultBounds}. */
  readonly bounds?: Partial<ResizeBounds>;
}

export interface ResizeBounds {
  /** Maximum number of resizes that have not ended, over all pods. */
  readonly active: number;
  /** Maximum number of ended resizes that can be queried. */
  readonly ended: number;
  readonly watchers: number;
  /** Maximum number of events that a watcher may leave unread. */
  readonly unreadEvents: number;
}

export const defaultBounds: ResizeBounds = { active: 1024, ended: 256, watchers: 64, unreadEvents: 1024 };

export interface WatchOptions {
  readonly withHistory?: boolean | undefined;
  readonly owner?: string | undefined;
}

export interface ResizeTerms {
  /** Whether the resize is retried when it does not fit yet. */
  readonly defer: boolean;
  /** Timeout of each attempt, in milliseconds. */
  readonly timeoutMs: number;
  /** Deadline of the first attempt, in milliseconds by {@link Clock.now}. */
  readonly deadline: number;
  /** The requester, for the history. Default: a client of the API. */
  readonly requester?: Requester;
}

/** The steps of a resize that was not applied, or why it would be deferred. */
export type DryRun =
  | (Omit<ResizeOutcome, 'memoryRequests'> & { readonly memoryRequests: RequestsAround })
  | { readonly deferred: Explanation };

/**
 * The resizes of whole pods, from the request to the end. A resize that does not fit yet is retried until it fits, is
 * superseded or cancelled, or its pod is removed; it survives a restart of the shim. `resizePod` runs the attempts.
 */
export class Resizes {
  readonly #runner: ResizeRunner;
  readonly #bounds: ResizeBounds;
  readonly #table: ResizeTable;
  readonly #writer: RecordWriter;
  readonly #watchers: ResizeWatchers;
  readonly #stored: StoredPodRecords;
  readonly #history: ResizeHistory;

  constructor(private readonly options: ResizesOptions) {
    const {
      store,
      clock,
      log,
      resizePod,
      random,
      counters,
      newest = new NewestValues(),
      rankOf = equalRanks,
    } = options;
    this.#history = options.history ?? new ResizeHistory({ log });
    this.#bounds = { ...defaultBounds, ...options.bounds };
    this.#table = new ResizeTable(this.#bounds.ended);
    this.#watchers = new ResizeWatchers(this.#bounds);
    this.#stored = new StoredPodRecords(log, options.kubeletRequests ?? (() => undefined));
    this.#writer = new RecordWriter({ store, clock, log, recordsOf: (podUid) => this.#recordsOf(podUid) });
    this.#runner = new ResizeRunner({
      resizePod,
      table: this.#table,
      stored: this.#stored,
      writer: this.#writer,
      watchers: this.#watchers,
      newest,
      history: this.#history,
      rankOf,
      clock,
      random,
      log,
      ...(counters && { counters }),
    });
    this.#history.onRequest((entry, record) => this.#watchers.publish(requestEvent(entry, record, clock)));
    newest.onApplied(async (sandboxId) => {
      for (const uid of this.#runner.dropSuperseded(sandboxId)) await this.#writer.store(uid);
    });
  }

  /** In steady state, with nothing in progress or deferred, proposed is the sum of the others. */
  get counts(): ResizeCounts {
    return this.#runner.counts;
  }

  /** The states of the resizes that have not ended. */
  get unfinished(): readonly ResizeState[] {
    return this.#table.allActive.map(({ resize }) => resize.state);
  }

  /** Returns a resize of the queue by its id; undefined if it is a request of the CRI, or no longer stored. */
  find(id: string): Resize | undefined {
    return this.#table.get(id);
  }

  /** Finds a resize by id or at least {@link SHORTEST_BEGINNING} first characters. Throws UNKNOWN_RESIZE. */
  get(id: string): Resize {
    const [found, ...more] = this.#table.matching(id);
    if (found !== undefined && more.length === 0) return found;
    const asked = id.slice(0, 64);
    const context = { asked, ...(more.length > 0 && { found: String(more.length + 1) }) };
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_RESIZE, this.#whyUnknown(asked, more.length), context);
  }

  #whyUnknown(asked: string, more: number): string {
    if (more > 0) return `${more + 1} resizes have an id that begins with ${JSON.stringify(asked)}: use more of the id`;
    if (asked.length < SHORTEST_BEGINNING)
      return `no resize with id ${JSON.stringify(asked)}: the beginning of an id has at least ${SHORTEST_BEGINNING} characters`;
    const request = this.#history.find(asked);
    return request === undefined
      ? `no resize with id ${JSON.stringify(asked)}: it is unknown or no longer stored`
      : `resize ${JSON.stringify(asked)} was a request of ${requesterText(request.requester)}, which has ended: ${request.state}`;
  }

  /** Returns the newest resize of a pod; undefined if there is none, or it is no longer stored. */
  newestOf(sandboxId: string): Resize | undefined {
    return this.#table.newestOf(sandboxId);
  }

  /** Returns the last resizes of a pod, from any requester; the newest first. */
  historyOf(sandboxId: string): readonly HistoryEntry[] {
    return this.#history.ofPod(sandboxId);
  }

  /** Returns the memory requests that completed resizes have set. */
  memoryRequestsOf(sandboxId: string): MemoryRequests {
    return this.#stored.requests.of(sandboxId);
  }

  /** Returns what the pod's annotations in Kubernetes requested last, by volume. */
  annotationsOf(sandboxId: string): Readonly<Record<string, string>> {
    return this.#stored.annotations.of(sandboxId);
  }

  /** Stores the requests of pod annotations for {@link annotationsOf}, also after a restart. Never rejects. */
  async storeAnnotations(pod: PodIdentity, volumes: Readonly<Record<string, string>>): Promise<void> {
    this.#stored.annotations.add(pod, volumes);
    await this.#writer.store(pod.uid);
  }

  /**
   * Returns what a resize would do; stores and counts nothing. Rejects as `resizePod` does, or as {@link readRequested}
   * throws.
   * @param terms `defer`: whether it would be retried. If it does not fit yet, returns why it would be deferred
   */
  async dryRun(
    { sandboxId }: PodIdentity,
    asked: RequestedPod,
    { deadline, defer }: Pick<ResizeTerms, 'deadline' | 'defer'>,
  ): Promise<DryRun> {
    const before = this.#stored.requests.of(sandboxId);
    const { desired, memoryRequests } = readRequested(asked, before);
    try {
      const outcome = await this.options.resizePod(sandboxId, desired, { dryRun: true, deadline, waits: defer });
      const set = outcome.memoryRequests ?? memoryRequests;
      return { ...outcome, memoryRequests: { before, after: this.#stored.requests.with(sandboxId, set) } };
    } catch (error) {
      const failure = failureOf(error);
      if (defer && fitsLater(failure)) return { deferred: explained(failure) };
      throw failure;
    }
  }

  /**
   * Resizes a pod. Resolves when the resize is Completed, Deferred, or Canceled by a newer one or a caller. Rejects
   * when it is Infeasible, does not fit yet and may not be deferred, or its pod is gone: with the ShimError of
   * `resizePod` and the resize's id in its context. Before the resize has an id, rejects with INVALID_VALUE,
   * INVALID_ANNOTATION, TOO_MANY_RESIZES or STOPPING.
   */
  async resize(pod: PodIdentity, asked: RequestedPod, terms: ResizeTerms): Promise<Resize> {
    const active = this.#propose(pod, asked, terms);
    const first = this.#runner.runFirst(active, terms.deadline);
    active.attempt = first.then(() => undefined);
    const failure = await first;
    const { state, reason, defer } = active.resize;
    const isRejected = state === 'Infeasible' || (state === 'Canceled' && !defer);
    const hasPodEnded = reason === ('POD_GONE' satisfies CancelReason) || reason === Reason.POD_ENDED;
    if (isRejected || hasPodEnded) throw failure;
    return active.resize;
  }

  /**
   * Cancels a deferred resize. A resize in progress is not retried; this resolves once its attempt has ended. Returns
   * the resize in its new state. Rejects with UNKNOWN_RESIZE.
   */
  async cancel(id: string): Promise<Resize> {
    const active = this.#table.active(this.get(id).id);
    if (active === undefined) return this.get(id);
    await this.#runner.cancel(active);
    return active.resize;
  }

  /**
   * Watches the resizes of one pod, in all its sandboxes, or of all pods, from any requester. The first events are the
   * states of the resizes that have not ended. Throws TOO_MANY_WATCHERS or STOPPING.
   * @param options `withHistory`: whether the last state of each stored resize precedes them; `owner`: the client,
   *   whose watches are limited to a share of all watches; undefined for the shim itself
   */
  watch(pod?: WatchedPod, { withHistory = false, owner }: WatchOptions = {}): ResizeWatch {
    if (this.#runner.isStopping) throw stopping();
    const active = new Set(this.#table.allActive.map(({ resize }) => resize.id));
    const ended = withHistory ? this.#history.all.filter(({ id }) => !active.has(id)) : [];
    const present = this.#table.allActive.map(({ resize }) => historyEntry(resize));
    const first = [...ended, ...present].filter((entry) => isWatched(pod, entry.pod));
    return this.#watchers.add(pod, first.map(stateEvent), owner);
  }

  /**
   * Moves the resizes of a pod and its annotation requests to its newest sandbox: kubelet creates the containers of an
   * ended sandbox again in another one, and the volumes stay. Stored memory requests of the ended sandbox are not
   * moved, because the new containers have kubelet's values.
   */
  sandboxAdded(podUid: string): void {
    const newest = this.options.newestSandbox?.(podUid);
    if (newest === undefined) return;
    const moved = [this.#runner.podMoved(newest), this.#stored.annotations.move(newest)];
    if (moved.includes(true)) void this.#writer.store(podUid);
  }

  /** Retries resizes that wait for a container of this pod: kubelet has started one. */
  containerStarted(sandboxId: string): void {
    this.#runner.containerStarted(sandboxId);
  }

  /** Ends the deferred resizes of a removed pod, and removes its stored values. */
  podRemoved(sandboxId: string): void {
    const uids = new Set(this.#stored.forget(sandboxId));
    for (const active of this.#table.activeOfPod(sandboxId)) {
      uids.add(active.resize.pod.uid);
      this.#runner.podRemoved(active);
    }
    for (const uid of uids) void this.#writer.store(uid);
    this.roomFreed();
  }

  /** Retries the resizes that wait for other pods to need less, in the order of KEP-1287. */
  roomFreed(): void {
    this.#runner.roomFreed();
  }

  /**
   * Restores the records of the previous process. Resizes whose pod no longer exists end; if `exists` rejects they
   * stay, and their next attempt decides. To be called once for the records of a pod. Rejects when the store cannot be
   * read.
   */
  async restore(
    exists: (sandboxId: string) => Promise<boolean>,
    store: Pick<ResizeStore, 'restore'> = this.options.store,
  ): Promise<void> {
    const { sandboxes, podUids, deferred } = await this.#stored.restore(store);
    // Across a restart, only the system time shows which record is older.
    for (const record of deferred.toSorted((one, other) => one.createdAt - other.createdAt))
      this.#runner.resume(record);
    for (const podUid of podUids) this.sandboxAdded(podUid);
    for (const sandboxId of sandboxes) if (!(await exists(sandboxId).catch(() => true))) this.podRemoved(sandboxId);
  }

  /** Starts no more attempts, waits for those in progress, and ends all watches. Deferred resizes stay in the store. */
  async close(): Promise<void> {
    await this.#runner.stop();
    this.#watchers.end(stopping());
    this.#writer.close();
  }

  #propose(pod: PodIdentity, asked: RequestedPod, terms: ResizeTerms): ActiveResize {
    const { defer, timeoutMs, requester = apiRequester(undefined) } = terms;
    try {
      if (this.#runner.isStopping) throw stopping();
      if (this.#table.activeCount >= this.#bounds.active) throw tooMany(this.#bounds.active);
      readRequested(asked, this.#stored.requests.of(pod.sandboxId));
    } catch (error) {
      this.#runner.countRejected();
      const isRefused = error instanceof ShimError && error.code === Code.INVALID_ARGUMENT;
      // For other errors, the shim lacks capacity for the request, which the client may repeat.
      if (isRefused) this.#history.request(pod, requester).failed(error);
      throw error;
    }
    return this.#runner.add({
      id: crypto.randomUUID(),
      pod,
      requester,
      asked,
      defer,
      timeoutMs,
      createdAt: this.options.clock.wallTime(),
    });
  }

  #recordsOf(podUid: string): readonly ResizeRecord[] {
    return [...this.#table.deferrableOf(podUid).map(deferredRecord), ...this.#stored.recordsOf(podUid)];
  }
}

function tooMany(max: number): ShimError {
  const message = `${max} resizes are in progress or deferred, which is the maximum: retry once some of them have ended`;
  return new ShimError(Code.RESOURCE_EXHAUSTED, Reason.TOO_MANY_RESIZES, message, { found: String(max) });
}

const requestEvent = (entry: HistoryEntry, record: StepRecord | undefined, clock: Clock): ResizeEvent =>
  record === undefined
    ? stateEvent(entry)
    : { ...stateEvent(entry), at: clock.wallTime(), what: { kind: 'step', record } };

const stopping = (): ShimError => new ShimError(Code.UNAVAILABLE, Reason.STOPPING, 'the shim is stopping');
