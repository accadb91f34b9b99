import type { CgroupPath } from '../../cgroups/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { JournalledTransaction, PodRecord } from './record.ts';
import type { Step } from '../model/index.ts';

/**
 * Changes a pod's record, and writes it. Rejects with JOURNAL_UNAVAILABLE, and the record is as before. `hasHappened`: it is as changed
 * even then, and written once the disk works.
 */
export type ChangeRecord = (change: (record: PodRecord) => PodRecord, hasHappened?: 'hasHappened') => Promise<void>;

/** A transaction in the journal that has not ended. */
export class OpenTransaction {
  readonly #change: ChangeRecord;
  readonly #earlier: JournalledTransaction | undefined;

  /** @param earlier a transaction whose rollback failed, which stays in the record when this one is rolled back */
  constructor(change: ChangeRecord, earlier?: JournalledTransaction) {
    this.#change = change;
    this.#earlier = earlier;
  }

  /** Records that the applied steps are about to be rolled back. */
  undoing(): Promise<void> {
    return this.#update(() => ({ undoing: true }));
  }

  /** Records the memory.high to restore, before it is lowered. */
  lowersHigh(cgroup: CgroupPath, memoryHigh: Limit<Bytes>): Promise<void> {
    return this.#update(({ highs }) => {
      const known = highs.find((high) => high.cgroup === cgroup);
      if (known?.memoryHigh === memoryHigh) return undefined;
      return { highs: [...highs.filter((high) => high !== known), { cgroup, memoryHigh }] };
    });
  }

  /** Records that the rollback failed: the pod is recovered in the background, at its next request or at the next start. */
  failed(why: string): Promise<void> {
    return this.#update(() => ({ failed: why }));
  }

  /**
   * Ends the transaction: every step is applied, or every applied step is rolled back. It has ended even if that does not reach the
   * disk, so that no recovery rolls back what the caller knows as applied.
   * @param volumes the current records of the pod's volumes
   * @param left steps to roll back later, although the transaction is done: of updates that the runtime has not answered
   */
  end(how: 'done' | 'undone', volumes: PodRecord['volumes'], left: readonly Step[] = []): Promise<void> {
    return this.#change(
      ({ podUid, sandboxId, transaction, holds, resizes }) => ({
        podUid,
        sandboxId,
        ...(holds && { holds }),
        ...(how === 'undone' && this.#earlier && { transaction: this.#earlier }),
        ...(transaction && left.length > 0 && { transaction: leftOf(transaction, left) }),
        volumes,
        ...(resizes && { resizes }),
      }),
      'hasHappened',
    );
  }

  /** @param changesOf returns the changes; undefined for none */
  #update(
    changesOf: (transaction: JournalledTransaction) => Partial<JournalledTransaction> | undefined,
  ): Promise<void> {
    return this.#change((record) => {
      const { transaction } = record;
      if (transaction === undefined) return record;
      const changes = changesOf(transaction);
      return changes === undefined ? record : { ...record, transaction: { ...transaction, ...changes } };
    });
  }
}

/** Returns a transaction of which only these steps are left to roll back. */
const leftOf = (
  { id, startedAt, failed = 'the runtime has not answered an update' }: JournalledTransaction,
  steps: readonly Step[],
): JournalledTransaction => ({ id, startedAt, steps, undoing: true, highs: [], failed });
