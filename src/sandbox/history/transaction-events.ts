import { type Bytes, type Log, messageOf } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { ContainerStep, PodTarget, Step, StepRecord } from '../plan/step.ts';
import type { KnownValues } from '../plan/value-changes.ts';
import type { PodState } from '../pods/pod-state.ts';

/** A transaction before its first step. */
export interface PlannedTransaction {
  readonly pod: PodDescription;
  /** The pod before it. */
  readonly before: PodState;
  readonly target: PodTarget;
  /** The values that it sets. */
  readonly values: KnownValues<Bytes>;
  /** Its steps, with the changes of the caller's own call in place of the call. */
  readonly steps: readonly Step[];
  /** The changes of the caller's own call; undefined for none. */
  readonly asked: ContainerStep | undefined;
}

/** Receives the events of transactions, in this order. Methods must not throw. */
export interface TransactionListener {
  /** A plan is rejected: nothing has changed. */
  rejected?(error: unknown): void;
  begins?(transaction: PlannedTransaction): void;
  /** A step was applied. */
  stepped?(transaction: PlannedTransaction, record: StepRecord): void;
  /** A step was left out. The others go on. */
  skipped?(transaction: PlannedTransaction, step: Step, error: unknown): void;
  /** All steps that were not skipped are applied. */
  applied?(transaction: PlannedTransaction): void;
  /** @param isLeft whether something of it is left to roll back */
  rolledBack?(transaction: PlannedTransaction, error: unknown, isLeft: boolean): void;
  /**
   * It has ended, also in the journal.
   * @param error why it has failed; undefined when it is done. Without a rollback before, nothing had begun
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
