import { type Bytes, type Log, messageOf } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { ContainerStep, PodTarget, Step, StepRecord } from '../plan/step.ts';
import type { KnownValues } from '../plan/value-changes.ts';
import type { PodState } from '../pods/pod-state.ts';

/** A transaction before its first step. */
export interface PlannedTransaction {
  readonly pod: PodDescription;
  /** The pod before the transaction. */
  readonly before: PodState;
  readonly target: PodTarget;
  /** The values that the transaction sets. */
  readonly values: KnownValues<Bytes>;
  /** The steps, with the changes of the caller's own call in place of the call. */
  readonly steps: readonly Step[];
  /** The changes of the caller's own call; undefined for none. */
  readonly asked: ContainerStep | undefined;
}

/** Receives the events of transactions, in this order. Methods must not throw. */
export interface TransactionListener {
  /** Called when a plan is rejected. Nothing has changed. */
  rejected?(error: unknown): void;
  begins?(transaction: PlannedTransaction): void;
  /** Called when a step was applied. */
  stepped?(transaction: PlannedTransaction, record: StepRecord): void;
  /** Called when a step was skipped. The other steps continue. */
  skipped?(transaction: PlannedTransaction, step: Step, error: unknown): void;
  /** Called when all steps that were not skipped are applied. */
  applied?(transaction: PlannedTransaction): void;
  /** @param isLeft whether a part of the transaction remains to be rolled back */
  rolledBack?(transaction: PlannedTransaction, error: unknown, isLeft: boolean): void;
  /**
   * Called when the transaction has ended, also in the journal.
   * @param error why it failed; undefined if it succeeded. If there was no rollback before, nothing had begun
   */
  ends?(transaction: PlannedTransaction, records: readonly StepRecord[], error?: unknown): void;
}

/** Passes transaction events to all listeners. Logs a listener's error, which does not affect the transaction. */
export class TransactionEvents implements Required<TransactionListener> {
  readonly #listeners: TransactionListener[] = [];

  constructor(private readonly log: Log) {}

  listen(listener: TransactionListener): void {
    this.#listeners.push(listener);
  }

  rejected(error: unknown): void {
    this.#each((listener) => listener.rejected?.(error));
  }

  begins(transaction: PlannedTransaction): void {
    this.#each((listener) => listener.begins?.(transaction));
  }

  stepped(transaction: PlannedTransaction, record: StepRecord): void {
    this.#each((listener) => listener.stepped?.(transaction, record));
  }

  skipped(transaction: PlannedTransaction, step: Step, error: unknown): void {
    this.#each((listener) => listener.skipped?.(transaction, step, error));
  }

  applied(transaction: PlannedTransaction): void {
    this.#each((listener) => listener.applied?.(transaction));
  }

  rolledBack(transaction: PlannedTransaction, error: unknown, isLeft: boolean): void {
    this.#each((listener) => listener.rolledBack?.(transaction, error, isLeft));
  }

  ends(transaction: PlannedTransaction, records: readonly StepRecord[], error?: unknown): void {
    this.#each((listener) => listener.ends?.(transaction, records, error));
  }

  #each(pass: (listener: TransactionListener) => void): void {
    for (const listener of this.#listeners) {
      try {
        pass(listener);
      } catch (error) {
        this.log.error({ error: messageOf(error) }, 'listener of transactions failed');
      }
    }
  }
}
