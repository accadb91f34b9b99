import type { CgroupPath } from '../../cgroups/index.ts';
import type { Bytes, Limit } from '../../core/index.ts';
import type { AdmittedRecord } from '../plan/resize-request.ts';
import type { Step } from '../plan/step.ts';
import type { JournalledTransaction, PodRecord } from './record.ts';

/**
 * Changes a pod's record and writes it. On failure, rejects with JOURNAL_UNAVAILABLE and restores the previous record.
 * With `hasHappened`, the change stays in memory and is written once the disk works.
 */
export type ChangeRecord = (change: (record: PodRecord) => PodRecord, hasHappened?: 'hasHappened') => Promise<void>;

/** Returns how the change of requests by a transaction ends whose values a later one has replaced. */
export const requestsReplaced = ({ failed }: JournalledTransaction): 'done' | 'undone' =>
  failed === undefined ? 'done' : 'undone';

/** Returns the requests of the pod once its transaction has ended. */
function admittedAfter(how: 'done' | 'undone' | 'open', admitted: AdmittedRecord): Pick<PodRecord, 'admitted'> {
  if (how === 'open') return { admitted };
  const { before, ...now } = admitted;
  if (how === 'done' || before === undefined) return { admitted: now };
  return before === null ? {} : { admitted: before };
}

/** A transaction in the journal that has not ended. */
export class OpenTransaction {
  /** The cgroup whose memory.high could not be restored, and why. */
  #highLeft: { readonly cgroup: CgroupPath; readonly why: string } | undefined;

  /**
   * @param earlier a transaction whose rollback failed; it stays in the record if this transaction is rolled back
   * @param isOthers whether the admitted requests in the record are those of `earlier`
   */
  constructor(
    private readonly change: ChangeRecord,
    private readonly earlier?: JournalledTransaction,
    private readonly isOthers = false,
  ) {}

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

  /** Records that a memory.high could not be restored: it stays in the record for the recovery when this ends. */
  leavesHigh(cgroup: CgroupPath, why: string): void {
    this.#highLeft = { cgroup, why };
  }

  /**
   * Records that the rollback failed: the pod is recovered in the background, at its next request or at the next start.
   * The failure counts even if it does not reach the disk: the pod's status reports it, and no other failure replaces
   * it.
   */
  failed(why: string): Promise<void> {
    return this.#update(() => ({ failed: why }), 'hasHappened');
  }

  /**
   * Ends the transaction: every step is applied, or every applied step is rolled back. The end counts even if it does
   * not reach the disk, so that no recovery rolls back a change that was reported to the caller as applied.
   * @param volumes the current records of the pod's volumes
   * @param left steps of unanswered updates, to roll back later although the transaction is done
   * @param requests how the change of the pod's requests ends
   */
  end(
    how: 'done' | 'undone',
    volumes: PodRecord['volumes'],
    left: readonly Step[] = [],
    requests: 'done' | 'undone' | 'open' = this.#endOfRequests(how),
  ): Promise<void> {
    return this.change(
      ({ podUid, sandboxId, transaction, holds, resizes, admitted }) => ({
        podUid,
        sandboxId,
        ...(holds && { holds }),
        ...(how === 'undone' && this.earlier && { transaction: this.earlier }),
        ...(transaction && how === 'done' && this.#leftOf(transaction, left)),
        volumes,
        ...(resizes && { resizes }),
        ...(admitted && admittedAfter(requests, admitted)),
      }),
      'hasHappened',
    );
  }

  /** Returns how the change of the pod's requests ends. Those of an earlier transaction end with it. */
  #endOfRequests(how: 'done' | 'undone'): 'done' | 'undone' | 'open' {
    if (!this.isOthers || this.earlier === undefined) return how;
    return how === 'undone' ? 'open' : requestsReplaced(this.earlier);
  }

  /** Returns what remains of a done transaction: these steps, and the memory.high values that could not be restored. */
  #leftOf(transaction: JournalledTransaction, steps: readonly Step[]): { transaction?: JournalledTransaction } {
    const before = this.earlier ?? transaction;
    // The earlier transaction has left only memory.high to restore.
    const highLeft = before.steps.length === 0 && before.failed !== undefined ? before.highs : [];
    const cgroups = new Set([...highLeft.map(({ cgroup }) => cgroup), this.#highLeft?.cgroup]);
    const highs = transaction.highs.filter(({ cgroup }) => cgroups.has(cgroup));
    if (steps.length === 0 && highs.length === 0) return {};
    const why = this.#highLeft?.why ?? (highLeft.length > 0 ? before.failed : undefined);
    const { id, startedAt, failed = why ?? 'the runtime has not answered an update' } = transaction;
    return { transaction: { id, startedAt, steps, undoing: true, highs, failed } };
  }

  /** @param changesOf returns the changes; undefined for none */
  #update(
    changesOf: (transaction: JournalledTransaction) => Partial<JournalledTransaction> | undefined,
    ...hasHappened: ['hasHappened'] | []
  ): Promise<void> {
    const change = (record: PodRecord): PodRecord => {
      const { transaction } = record;
      if (transaction === undefined) return record;
      const changes = changesOf(transaction);
      return changes === undefined ? record : { ...record, transaction: { ...transaction, ...changes } };
    };
    return this.change(change, ...hasHappened);
  }
}
