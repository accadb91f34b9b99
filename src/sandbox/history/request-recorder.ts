import { type Bytes, isRollbackFailure, Reason } from '../../core/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { explained, failureOf, fitsLater } from '../plan/failures.ts';
import type { ResizeOptions } from '../plan/resize-request.ts';
import type { Step, StepRecord } from '../plan/step.ts';
import {
  type ContainerName,
  joinedChanges,
  type KnownValues,
  memoryRequestChanges,
  requestedChanges,
  stepChanges,
  type ValueChange,
} from '../plan/value-changes.ts';
import type { HistoryEntry, Requester } from './history-entry.ts';

/** Maximum characters of one value: unified keys of the CRI may have any content. */
const VALUE_LENGTH = 128;

/** Receives the changes of one request. Methods must not throw. */
export type ChangeListener = Pick<ResizeOptions, 'onChanges' | 'onStep' | 'onLeftUnfinished'>;

/** Collects the changes of one request: first the requested values, then the steps of its transactions. */
export class ChangeRecorder {
  #requested: readonly ValueChange[] = [];
  #memoryRequests: readonly ValueChange[] = [];
  #steps: readonly ValueChange[] | undefined;
  /** Number of transactions that have begun. */
  #transactions = 0;

  /** @param max changes to store; later ones are dropped */
  constructor(
    private readonly nameOf: ContainerName,
    private readonly max: number,
    private readonly listener: ChangeListener = {},
  ) {}

  /** The changes of the steps, or the requested ones until a transaction begins. Includes memory requests (no step). */
  get changes(): readonly ValueChange[] {
    return this.#bounded([...(this.#steps ?? this.#requested), ...this.#memoryRequests]);
  }

  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void {
    this.#requested = this.#bounded(requestedChanges(desired, now, this.nameOf));
    this.#memoryRequests = this.#bounded(memoryRequestChanges(desired, now, this.nameOf));
    this.listener.onChanges?.(this.changes);
  }

  /** Records the begin of a transaction. A request may have several. */
  begins(steps: readonly Step[]): void {
    this.#transactions += 1;
    this.#steps = this.#bounded(joinedChanges(this.#steps ?? [], stepChanges(steps, this.nameOf)));
    this.listener.onChanges?.(this.changes);
  }

  /** Records an applied step. Omits later transactions: they correct values that runtime plugins have chosen. */
  stepped(record: StepRecord): void {
    if (this.#transactions === 1) this.listener.onStep?.(record);
  }

  leftUnfinished(): void {
    this.listener.onLeftUnfinished?.();
  }

  #bounded(changes: readonly ValueChange[]): readonly ValueChange[] {
    return boundedChanges(changes, this.max);
  }
}

/** Returns the first `max` changes, with names and values truncated for the history. */
export const boundedChanges = (changes: readonly ValueChange[], max: number): readonly ValueChange[] =>
  changes.slice(0, max).map(({ value, from, to }) => ({
    value: value.slice(0, VALUE_LENGTH),
    from: from.slice(0, VALUE_LENGTH),
    to: to.slice(0, VALUE_LENGTH),
  }));

/** Receives the events of a running request. Methods must not throw. */
export interface RequestReport {
  /** Called when the request was read, with its desired values and the pod's present values. */
  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void;
  /** Called when a transaction begins. */
  begins(steps: readonly Step[]): void;
  /** Called when a step was applied. */
  stepped(record: StepRecord): void;
  /** Called when the request fails and leaves something to roll back. */
  leftUnfinished(): void;
  completed(): void;
  failed(error: unknown): void;
}

type State = Pick<HistoryEntry, 'state' | 'reason' | 'message' | 'changes' | 'isRolledBack'>;

interface Sink {
  put(state: State): void;
  step(record: StepRecord): void;
}

/** Records a request of a CRI client. Requests that change nothing, of which kubelet makes many, are not stored. */
export class RequestRecorder implements RequestReport {
  #applied = 0;
  #isStored = false;
  #isUnfinished = false;

  constructor(
    private readonly changes: ChangeRecorder,
    private readonly requester: Requester,
    private readonly sink: Sink,
  ) {}

  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void {
    this.changes.asks(desired, now);
  }

  begins(steps: readonly Step[]): void {
    this.changes.begins(steps);
    if (this.changes.changes.length > 0) this.#put({ state: 'InProgress', reason: undefined, message: undefined });
  }

  stepped(record: StepRecord): void {
    this.#applied += 1;
    this.sink.step(record);
  }

  leftUnfinished(): void {
    this.#isUnfinished = true;
  }

  completed(): void {
    if (!this.#isStored && this.changes.changes.length === 0) return;
    this.#put({ state: 'Completed', reason: undefined, message: undefined });
  }

  failed(error: unknown): void {
    const state = fitsLater(error) && this.requester.kind !== 'cri-client' ? 'Deferred' : 'Infeasible';
    this.#put(
      { state, ...explained(failureOf(error)) },
      this.#applied > 0 && !this.#isUnfinished && !isRollbackFailure(error),
    );
  }

  /** Called when a newer request has replaced this one before it began. */
  superseded(message: string): void {
    this.#put({ state: 'Canceled', reason: Reason.SUPERSEDED, message });
  }

  #put(state: Pick<State, 'state' | 'reason' | 'message'>, isRolledBack = false): void {
    this.#isStored = true;
    this.sink.put({ ...state, changes: this.changes.changes, isRolledBack });
  }
}
