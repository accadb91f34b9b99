import type { Bytes } from '../../core/quantities/index.ts';
import { Reason, isRollbackFailure } from '../../core/errors/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { type KnownValues, type Step, type StepRecord, explained, failureOf, fitsLater } from '../model/index.ts';
import type { ChangeRecorder } from './change-recorder.ts';
import type { HistoryEntry } from './history-entry.ts';
import type { Requester } from './requester.ts';

/** What is reported of a request while it runs. Methods must not throw. */
export interface RequestReport {
  /** The request was read: what it asks for, and what the pod has. */
  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void;
  /** A transaction begins. */
  begins(steps: readonly Step[]): void;
  /** A step was applied. */
  stepped(record: StepRecord): void;
  /** It fails, and something of it is left to roll back. */
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
  readonly #changes: ChangeRecorder;
  readonly #requester: Requester;
  readonly #sink: Sink;
  #applied = 0;
  #isStored = false;
  #isUnfinished = false;

  constructor(changes: ChangeRecorder, requester: Requester, sink: Sink) {
    this.#changes = changes;
    this.#requester = requester;
    this.#sink = sink;
  }

  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void {
    this.#changes.asks(desired, now);
  }

  begins(steps: readonly Step[]): void {
    this.#changes.begins(steps);
    if (this.#changes.changes.length > 0) this.#put({ state: 'InProgress', reason: undefined, message: undefined });
  }

  stepped(record: StepRecord): void {
    this.#applied += 1;
    this.#sink.step(record);
  }

  leftUnfinished(): void {
    this.#isUnfinished = true;
  }

  completed(): void {
    if (!this.#isStored && this.#changes.changes.length === 0) return;
    this.#put({ state: 'Completed', reason: undefined, message: undefined });
  }

  failed(error: unknown): void {
    const state = fitsLater(error) && this.#requester.kind === 'kubelet' ? 'Deferred' : 'Infeasible';
    this.#put(
      { state, ...explained(failureOf(error)) },
      this.#applied > 0 && !this.#isUnfinished && !isRollbackFailure(error),
    );
  }

  /** A newer request has replaced it before it began. */
  superseded(message: string): void {
    this.#put({ state: 'Canceled', reason: Reason.SUPERSEDED, message });
  }

  #put(state: Pick<State, 'state' | 'reason' | 'message'>, isRolledBack = false): void {
    this.#isStored = true;
    this.#sink.put({ ...state, changes: this.#changes.changes, isRolledBack });
  }
}
