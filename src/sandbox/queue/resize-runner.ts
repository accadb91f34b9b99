import {
  type Clock,
  Code,
  type Counters,
  isRollbackFailure,
  type Log,
  loggableError,
  Reason,
  ShimError,
} from '../../core/index.ts';
import { historyBounds, type ResizeHistory } from '../history/history.ts';
import type { Requester } from '../history/history-entry.ts';
import type { NewestValues, Writer } from '../history/newest-values.ts';
import { boundedChanges } from '../history/request-recorder.ts';
import { type Explanation, explained, failureOf, fitsLater, passes, waitsForRecovery } from '../plan/failures.ts';
import type { MemoryRequests, ResizeOptions, ResizeOutcome, ResizePod, ResizeState } from '../plan/resize-request.ts';
import type { StepRecord } from '../plan/step.ts';
import type { DeferredRecord, RecordWriter } from './records.ts';
import { type ReadRequest, readRequested } from './request.ts';
import { askedChanges, fieldsOf } from './requested-fields.ts';
import {
  type ActiveResize,
  type CancelReason,
  hasEnded,
  hasNewer,
  historyEntry,
  type Resize,
  type ResizeCounts,
  type ResizeTable,
  removeSuperseded,
  stateEvent,
  writerOf,
} from './resize-table.ts';
import { freesRoom, isOfContainer, type RankOf, Retries, retryDelay, waitsForContainer } from './retries.ts';
import type { StoredPodRecords } from './stored-pod-records.ts';
import type { ResizeWatchers } from './watch.ts';

export interface ResizeRunnerOptions {
  readonly resizePod: ResizePod;
  readonly table: ResizeTable;
  readonly stored: StoredPodRecords;
  readonly writer: RecordWriter;
  readonly watchers: ResizeWatchers;
  readonly newest: NewestValues;
  readonly history: ResizeHistory;
  /** The ranks of pods for the order of retries. */
  readonly rankOf: RankOf;
  readonly clock: Clock;
  /** Returns 0 to 1, like Math.random: spreads the retries. */
  readonly random: () => number;
  readonly log: Log;
  readonly counters?: Counters;
}

/** Runs, defers, retries, supersedes and ends resizes. Counts and publishes each state. */
export class ResizeRunner {
  readonly #table: ResizeTable;
  readonly #stored: StoredPodRecords;
  readonly #writer: RecordWriter;
  readonly #watchers: ResizeWatchers;
  readonly #retries: Retries;
  readonly #counts = { proposed: 0, infeasible: 0, completed: 0, canceled: 0 };
  #resumed = 0;
  #isStopping = false;

  constructor(private readonly options: ResizeRunnerOptions) {
    this.#table = options.table;
    this.#stored = options.stored;
    this.#writer = options.writer;
    this.#watchers = options.watchers;
    const { table, clock, rankOf } = options;
    this.#retries = new Retries({
      table,
      clock,
      rankOf,
      attempt: (active, onAdmitted) => this.#retry(active, onAdmitted),
      isStopping: () => this.#isStopping,
    });
  }

  get counts(): ResizeCounts {
    return { ...this.#counts };
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Starts no more attempts, and waits for those in progress. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    for (const active of this.#table.allActive) active.stopTimer();
    await Promise.all([this.#retries.idle(), ...this.#table.allActive.map(({ attempt }) => attempt)]);
  }

  /** Adds a resize in state Proposed. */
  add(
    given: Pick<Resize, 'id' | 'pod' | 'requester' | 'asked' | 'defer' | 'timeoutMs' | 'createdAt'>,
    order = this.options.newest.arrival(),
  ): ActiveResize {
    const active: ActiveResize = {
      resize: {
        ...given,
        state: 'Proposed',
        reason: undefined,
        message: undefined,
        steps: [],
        isRolledBack: false,
        changes: boundedChanges(askedChanges(given.asked), historyBounds.changes),
        before: undefined,
        after: undefined,
        memoryRequests: undefined,
        changedAt: this.options.clock.wallTime(),
        tries: 0,
        nextTryAt: undefined,
      },
      order,
      dueAt: undefined,
      attempt: Promise.resolve(),
      wasDeferred: false,
      hasStarted: false,
      isUnfinished: false,
      cancelled: false,
      podGone: false,
      stopTimer: () => undefined,
    };
    this.#count('Proposed');
    this.#table.add(active);
    this.#publish(active);
    return active;
  }

  /** Counts a request that was rejected before it became a resize. */
  countRejected(): void {
    this.#count('Proposed');
    this.#count('Infeasible');
  }

  /** Adds a deferred resize of the previous process, and schedules its next attempt. */
  resume({ id, pod, asked, timeoutMs, createdAt }: DeferredRecord): void {
    // Older than every request of this process, in their original order.
    const order = (this.#resumed += 1) - Number.MAX_SAFE_INTEGER;
    const requester = this.#requesterOf(pod, asked);
    const active = this.add({ id, pod, requester, asked, defer: true, timeoutMs, createdAt }, order);
    this.#defer(active, {
      reason: 'RESTARTED',
      message: 'restored after a restart of the shim; a retry is scheduled',
    });
  }

  /** Infers the requester, which is not stored: annotations, if the resize sets only annotated volume sizes. */
  #requesterOf({ sandboxId }: Resize['pod'], { pod, containers, volumes }: Resize['asked']): Requester {
    const annotated = this.#stored.annotations.of(sandboxId);
    const isForVolumes = fieldsOf({ pod, containers, volumes: {} }).size === 0;
    const isTheirs = Object.entries(volumes).every(([name, text]) => annotated[name] === text);
    return { kind: isForVolumes && isTheirs ? 'annotation' : 'api' };
  }

  /** Ends a deferred resize. For a resize in progress, waits for the attempt, after which no other follows. */
  async cancel(active: ActiveResize): Promise<void> {
    active.cancelled = true;
    if (active.resize.state === 'Deferred') await this.#end(active, 'Canceled', cancelled);
    else await active.attempt;
  }

  /** Ends a deferred resize whose pod no longer exists. A resize in progress ends with its attempt. */
  podRemoved(active: ActiveResize): void {
    active.podGone = true;
    if (active.resize.state === 'Deferred') this.#enter(active, 'Canceled', podGone);
  }

  /**
   * Moves the resizes of a pod that have not ended to another sandbox of the pod. Returns whether there were any.
   * Publishes them again, because watchers of the new sandbox have not seen them.
   */
  podMoved(pod: Resize['pod']): boolean {
    const moved = this.#table.move(pod);
    for (const active of moved) this.#publish(active);
    return moved.length > 0;
  }

  /** Runs the first attempt. Stores a deferrable resize before that. Returns the error, if any; never rejects. */
  async runFirst(active: ActiveResize, deadline: number): Promise<unknown> {
    if (!active.resize.defer) return this.#attempt(active, deadline);
    try {
      await this.#writer.save(active.resize.pod.uid);
    } catch (error) {
      const failure = failureOf(error, active.resize.id);
      await this.#end(active, 'Infeasible', explained(failure));
      return failure;
    }
    if (!active.cancelled) return this.#attempt(active, deadline);
    return this.#end(active, 'Canceled', cancelled);
  }

  /** Runs one attempt. Returns the error, if any; never rejects. */
  async #attempt(active: ActiveResize, deadline: number, onAdmitted?: () => void): Promise<unknown> {
    const { id, pod, defer: waits, tries } = active.resize;
    const steps: StepRecord[] = [];
    active.hasStarted = false;
    active.isUnfinished = false;
    this.#enter(active, 'InProgress', {
      ...noReason,
      steps,
      isRolledBack: false,
      tries: tries + 1,
      nextTryAt: undefined,
    });
    const read = (): ReadRequest => readRequested(active.resize.asked, this.#stored.requests.of(pod.sandboxId));
    try {
      const callbacks = { ...this.#callbacks(active, steps, read), ...(onAdmitted && { onAdmitted }) };
      const options = { dryRun: false, deadline, writer: writerOf(active), waits, ...callbacks };
      const outcome = await this.options.resizePod(pod.sandboxId, read().desired, options);
      await this.#complete(active, outcome, read().memoryRequests);
      return undefined;
    } catch (error) {
      const failure = ofMovedPod(active, pod, failureOf(error, id));
      active.resize = { ...active.resize, isRolledBack: isRolledBack(active, failure) };
      await this.#fail(active, failure);
      return failure;
    }
  }

  /** Returns the callbacks for an attempt of a resize. They add its steps to `steps`. */
  #callbacks(
    active: ActiveResize,
    steps: StepRecord[],
    read: () => ReadRequest,
  ): Omit<ResizeOptions, 'dryRun' | 'deadline'> {
    const { id, pod, requester } = active.resize;
    return {
      onStep: (record) => {
        steps.push(record);
        const at = this.options.clock.wallTime();
        this.#watchers.publish({ resize: id, pod, requester, at, what: { kind: 'step', record } });
      },
      onChanges: (changes) => {
        active.resize = { ...active.resize, changes };
      },
      onLeftUnfinished: () => {
        active.isUnfinished = true;
      },
      stillDesired: () => {
        const newer = removeSuperseded(this.options, active);
        if (newer === undefined) return read().desired;
        throw new ShimError(Code.ABORTED, Reason.SUPERSEDED, superseded(newer).message);
      },
      onRoomFreed: () => this.roomFreed(),
    };
  }

  async #complete(active: ActiveResize, outcome: ResizeOutcome, desired: MemoryRequests): Promise<void> {
    const { steps, before, after, memoryRequests: asked = desired } = outcome;
    const { pod, defer } = active.resize;
    const memoryRequests = {
      before: this.#stored.requests.of(pod.sandboxId),
      after: this.#stored.requests.with(pod.sandboxId, asked),
    };
    const isStored = !active.podGone && this.#stored.requests.add(pod, asked);
    await this.options.newest.applied(pod.sandboxId, writerOf(active), fieldsOf(active.resize.asked));
    this.#enter(active, 'Completed', { steps, before, after, memoryRequests });
    if (isStored || defer) await this.#writer.store(pod.uid);
    if (freesRoom({ steps, before, after }, memoryRequests)) this.roomFreed();
  }

  async #fail(active: ActiveResize, failure: unknown): Promise<void> {
    const { defer } = active.resize;
    if (failure instanceof ShimError && ENDS.has(failure.reason))
      return this.#end(active, 'Canceled', explained(failure));
    const fits = fitsLater(failure);
    const retries = defer && (fits || waitsForRecovery(failure) || (active.wasDeferred && passes(failure)));
    if (active.podGone || isGone(failure)) return this.#end(active, 'Canceled', podGone);
    if (!retries && fits) this.#cancelUnfit(active, explained(failure));
    else if (!retries) await this.#end(active, 'Infeasible', explained(failure));
    else await this.#deferOrCancel(active, failure);
  }

  /** Defers a resize, unless it was cancelled or superseded during its attempt. */
  async #deferOrCancel(active: ActiveResize, failure: unknown): Promise<void> {
    if (active.cancelled) return this.#end(active, 'Canceled', cancelled);
    const newer = removeSuperseded(this.options, active);
    if (newer !== undefined) return this.#end(active, 'Canceled', superseded(newer));
    this.#defer(active, explained(failure));
    await this.#dropOlder(active);
  }

  /** Ends a resize that does not fit yet and may not be deferred: first Deferred, like all, then Canceled. */
  #cancelUnfit(active: ActiveResize, { reason, message }: Explanation): void {
    this.#enter(active, 'Deferred', { reason, message });
    this.#enter(active, 'Canceled', { reason, message: `${message}; the request does not allow a retry (defer)` });
  }

  /** Retries the resizes that wait for resources on the node, in order: another pod may have freed some. */
  roomFreed(): void {
    if (!this.#isStopping) this.#retries.roomFreed();
  }

  /** Retries the resizes of this pod that wait for a container. */
  containerStarted(sandboxId: string): void {
    if (this.#isStopping) return;
    for (const active of this.#table.activeOfPod(sandboxId)) {
      active.hasStarted = true;
      if (waitsForContainer(active)) this.#retries.due(active);
    }
  }

  /** Removes fields that newer requests set from the pod's deferred resizes. Returns the pod uids to store. */
  dropSuperseded(sandboxId: string): readonly string[] {
    const deferred = this.#table.activeOfPod(sandboxId).filter(({ resize }) => resize.state === 'Deferred');
    const narrowed = deferred.filter((active) => {
      const { asked } = active.resize;
      const newer = removeSuperseded(this.options, active);
      if (newer !== undefined) this.#enter(active, 'Canceled', superseded(newer));
      return newer !== undefined || active.resize.asked !== asked;
    });
    return [...new Set(narrowed.map(({ resize }) => resize.pod.uid))];
  }

  /** Stores and cancels older deferred resizes of the pod as far as this applied or deferred one covers them. */
  async #dropOlder({ resize }: ActiveResize): Promise<void> {
    for (const uid of this.dropSuperseded(resize.pod.sandboxId)) await this.#writer.store(uid);
  }

  #defer(active: ActiveResize, why: Explanation): void {
    active.wasDeferred = true;
    const { clock, random } = this.options;
    // The attempt may have read the containers before the expected container started.
    const isMissed = active.hasStarted && isOfContainer(why.reason);
    const delay = isMissed ? 0 : retryDelay(active.resize.tries, random(), why.reason);
    this.#enter(active, 'Deferred', { ...why, nextTryAt: clock.wallTime() + delay });
    active.dueAt = clock.now() + delay;
    if (!this.#isStopping) active.stopTimer = clock.after(delay, () => this.#retries.due(active));
  }

  /** Runs another attempt. Never rejects. */
  #retry(active: ActiveResize, onAdmitted?: () => void): Promise<void> {
    const { id, pod, timeoutMs, reason = '', message = '' } = active.resize;
    // A newer resize is in progress. If this one ran after it, the older values would replace the newer ones.
    if (hasNewer(this.#table, active)) {
      this.#defer(active, { reason, message });
      return Promise.resolve();
    }
    active.attempt = this.#attempt(active, this.options.clock.now() + timeoutMs, onAdmitted).then((failure) => {
      const { state, reason, tries } = active.resize;
      const fields = { resize: id, pod: pod.sandboxId, state, reason, tries };
      this.options.log.info(fields, 'deferred resize retried');
      if (reason === Reason.INTERNAL) {
        this.options.log.error({ ...fields, ...loggableError(failure) }, 'resize failed because of an internal error');
      }
    });
    return active.attempt;
  }

  /** Ends a resize and updates the stored records. Returns undefined, so that callers can return its result. */
  async #end(active: ActiveResize, state: ResizeState, why: Pick<Resize, 'reason' | 'message'>): Promise<undefined> {
    this.#enter(active, state, why);
    if (active.resize.defer) await this.#writer.store(active.resize.pod.uid);
    return undefined;
  }

  #enter(active: ActiveResize, state: ResizeState, changes: Partial<Resize>): void {
    active.stopTimer();
    active.dueAt = undefined;
    const next = hasEnded(state) ? { nextTryAt: undefined } : {};
    active.resize = { ...active.resize, ...changes, ...next, state, changedAt: this.options.clock.wallTime() };
    this.#count(state);
    if (hasEnded(state)) this.#table.end(active.resize);
    this.#publish(active);
  }

  #publish({ resize }: ActiveResize): void {
    this.#watchers.publish(stateEvent(this.options.history.put(historyEntry(resize))));
  }

  #count(state: ResizeState): void {
    if (state === 'Proposed') this.#counts.proposed += 1;
    if (state === 'Infeasible') this.#counts.infeasible += 1;
    if (state === 'Completed') this.#counts.completed += 1;
    if (state === 'Canceled') this.#counts.canceled += 1;
    this.options.counters?.resizeState(state);
  }
}

/** Whether the steps of a failed attempt were rolled back. */
const isRolledBack = ({ resize, isUnfinished }: ActiveResize, failure: unknown): boolean =>
  resize.steps.length > 0 && !isUnfinished && !isRollbackFailure(failure);

/** Whether the sandbox of an attempt was removed. */
const isGone = (failure: unknown): boolean => failure instanceof ShimError && failure.code === Code.NOT_FOUND;

/** Returns an attempt's failure. If the removed sandbox was replaced, the pod still exists. */
function ofMovedPod({ resize }: ActiveResize, tried: Resize['pod'], failure: unknown): unknown {
  const { sandboxId, namespace, name } = resize.pod;
  if (!isGone(failure) || sandboxId === tried.sandboxId) return failure;
  return new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.SANDBOX_ENDED,
    `pod ${namespace}/${name}: its sandbox ${tried.sandboxId} was removed during the attempt; its newest one is ${sandboxId}`,
    { pod: resize.pod.uid, resize: resize.id, found: sandboxId },
    { cause: failure },
  );
}

/** Reasons that end a resize without a failure. */
const ENDS: ReadonlySet<Reason> = new Set([Reason.SUPERSEDED, Reason.POD_ENDED]);

const noReason = { reason: undefined, message: undefined };
const cancelled = { reason: 'CANCELLED' satisfies CancelReason, message: 'cancelled by a caller' };
const podGone = { reason: 'POD_GONE' satisfies CancelReason, message: 'the pod is gone' };
const superseded = ({ text }: Writer) => ({
  reason: 'SUPERSEDED' satisfies CancelReason,
  message: `superseded by ${text}`,
});
