import { isDeepStrictEqual } from 'node:util';
import type { PreviousHigh } from '../../cgroups/index.ts';
import { KeyedLock, ShimError, wallTime } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { AdmittedRecord } from '../plan/resize-request.ts';
import type { Step } from '../plan/step.ts';
import { LateChange, type Readiness } from './availability.ts';
import type { WithheldCounts } from './loader.ts';
import { type ChangeRecord, OpenTransaction } from './open-transaction.ts';
import type { JournalledTransaction, PodRecord, RequestedVolume } from './record.ts';
import type { Journal } from './store.ts';
import { UnansweredUpdates } from './unanswered.ts';

/** Identifies the pod of a record. `podUid` is the sandbox's id when the pod has no uid. */
export type Identity = Pick<PodRecord, 'podUid' | 'sandboxId'>;

/** Input of {@link PodJournal.begin} in addition to the steps. */
export interface BeginOptions {
  /** The current records of the pod's volumes. */
  readonly volumes: PodRecord['volumes'];
  /** The requested volume policies: they set the sizes once the transaction is done. */
  readonly asked?: ReadonlyMap<string, RequestedVolume>;
  /** memory.high of the cgroups where the transaction may lower it. Recording all at the start saves one write each. */
  readonly highs?: readonly PreviousHigh[];
  /** The pod's requests from now on, and those to restore if the transaction is rolled back. */
  readonly admitted?: AdmittedRecord | undefined;
}

/**
 * The records of all pods, in memory and on the disk, and their changes: begin, roll back and end a transaction, set
 * volumes, begin and end a hold, set deferred requests. Callers hold the pod's lock, except for deferred requests and
 * for holds, which never overlap with a section under that lock.
 */
export class PodJournal {
  /** Updates that the runtime has not answered. */
  readonly unanswered = new UnansweredUpdates();
  /** Resolves once the records of the previous process are read. */
  readonly #restored: Promise<void>;
  readonly #records = new Map<string, PodRecord>();
  /** Serializes the changes of a record: a failed change must not revert a later one. */
  readonly #changes = new KeyedLock();
  readonly #late: ((pods: readonly Identity[]) => void)[] = [];
  #opened: Journal | undefined;
  #onUnfinished: () => void = () => undefined;

  /** @param journal a promise, because a starting shim already serves the calls that need no journal */
  constructor(private readonly journal: Promise<Journal>) {
    this.#restored = this.#restore();
  }

  /** Resolves once the records of the previous process are read. Never rejects. */
  restored(): Promise<void> {
    return this.#restored;
  }

  /** Returns whether a resize can be journalled now, and the error if not. */
  async readiness(): Promise<Readiness> {
    return (await this.journal).readinessNow();
  }

  /** Returns how many records are ignored because their content is not known. */
  async withheld(): Promise<WithheldCounts> {
    return (await this.journal).withheld;
  }

  /** Whether the record of a pod cannot be changed at present, because its content is unknown. */
  isReadOnly(pod: PodDescription): boolean {
    return this.#opened?.refusal(identityOf(pod).podUid) !== undefined;
  }

  /** Calls `listener` with pods whose records are read after the start, before any of them can change. */
  onLate(listener: (pods: readonly Identity[]) => void): void {
    this.#late.push(listener);
  }

  /**
   * Calls `listener` when a transaction or a hold could not end, because its changes could not be rolled back or the
   * journal could not be written, and when its pod has a new sandbox.
   */
  onUnfinished(listener: () => void): void {
    this.#onUnfinished = listener;
  }

  async #restore(): Promise<void> {
    const journal = await this.journal;
    this.#opened = journal;
    journal.onLate((records) => {
      for (const record of records) this.#inherit(record);
      for (const listener of this.#late) listener(records);
    });
    for (const record of await journal.load()) this.#inherit(record);
  }

  /** Adds a record of the previous process. That process may have ended before the runtime answered. */
  #inherit(record: PodRecord): void {
    this.#records.set(record.podUid, record);
    this.unanswered.add(record.sandboxId, record.transaction?.steps ?? []);
  }

  /** Returns the pods with a transaction or a hold that has not ended. */
  unfinished(): readonly Identity[] {
    return [...this.#records.values()].filter(isUnfinished);
  }

  /** Whether the pod has a transaction or a hold that has not ended. */
  isUnfinished(pod: PodDescription): boolean {
    const record = this.#records.get(identityOf(pod).podUid);
    return record !== undefined && isUnfinished(record);
  }

  /** Reports a new sandbox of a pod: unfinished changes of an earlier sandbox can be recovered now. */
  sandboxAdded(pod: PodDescription): void {
    const record = this.#records.get(identityOf(pod).podUid);
    if (record !== undefined && record.sandboxId !== pod.sandboxId && isUnfinished(record)) this.#onUnfinished();
  }

  /** Returns every pod that has a record. */
  identities(): readonly Identity[] {
    return [...this.#records.values()];
  }

  transactionOf(pod: PodDescription): JournalledTransaction | undefined {
    return this.#records.get(identityOf(pod).podUid)?.transaction;
  }

  /** Returns the cgroups of a hold that has not ended, with the memory.high to restore. */
  holdsOf(pod: PodDescription): readonly PreviousHigh[] {
    return this.#records.get(identityOf(pod).podUid)?.holds ?? [];
  }

  /**
   * Records the memory.high to restore before a hold lowers it, or an empty list after it is restored. Rejects with
   * JOURNAL_UNAVAILABLE.
   */
  async setHolds(pod: PodDescription, holds: readonly PreviousHigh[]): Promise<void> {
    await this.#change(identityOf(pod), (record) => {
      const { holds: known, ...others } = record;
      if (holds.length === 0) return known === undefined ? record : others;
      return { ...others, holds };
    });
  }

  /** Reports that the record of an ended hold stays: memory.high was not restored, or the end not written. */
  holdLeft(): void {
    this.#onUnfinished();
  }

  /** Returns the recorded size policies of a pod's volumes. */
  volumesOf(pod: PodDescription): PodRecord['volumes'] {
    return this.#records.get(identityOf(pod).podUid)?.volumes ?? new Map();
  }

  /** Records the volumes of a pod. Rejects with JOURNAL_UNAVAILABLE. */
  async setVolumes(pod: PodDescription, volumes: PodRecord['volumes']): Promise<void> {
    await this.#change(identityOf(pod), (record) => ({ ...record, volumes }));
  }

  /** Returns the requests that ResizePod has set for pods, by pod uid. */
  admitted(): ReadonlyMap<string, AdmittedRecord> {
    const found = [...this.#records].map(([podUid, { admitted }]) => [podUid, admitted] as const);
    return new Map(found.flatMap(([podUid, admitted]) => (admitted === undefined ? [] : [[podUid, admitted]])));
  }

  /** Returns the deferred requests of all pods by pod uid, as passed to {@link setResizes}. */
  resizes(): ReadonlyMap<string, readonly unknown[]> {
    return new Map([...this.#records].map(([podUid, { resizes = [] }]) => [podUid, resizes]));
  }

  /**
   * Records a transaction before its first step is applied. Rejects with JOURNAL_UNAVAILABLE: the transaction must not
   * start then.
   *
   * An earlier transaction whose rollback failed stays in the record: a recovery rolls it back together with this one,
   * and it remains when only this one is rolled back. Once this one is done, its values replace those of the earlier
   * one.
   */
  async begin(
    pod: PodDescription,
    steps: readonly Step[],
    { volumes, asked = new Map(), highs = [], admitted }: BeginOptions,
  ): Promise<OpenTransaction> {
    const earlier = this.transactionOf(pod);
    const transaction = {
      id: crypto.randomUUID(),
      startedAt: wallTime(),
      ...(asked.size > 0 && { allocated: Object.fromEntries(asked) }),
      steps: withoutRepeated(earlier?.steps ?? [], steps),
      undoing: earlier !== undefined,
      highs: highs.reduce(withHigh, earlier?.highs ?? []),
    };
    await this.#change(identityOf(pod), (record) => ({
      ...record,
      volumes,
      transaction,
      ...(admitted && { admitted }),
    }));
    return new OpenTransaction(
      (...change) => this.#change(identityOf(pod), ...change),
      earlier,
      admitted === undefined,
    );
  }

  /** Continues a transaction of the previous process, or one whose rollback failed. */
  reopen(pod: PodDescription): OpenTransaction {
    return new OpenTransaction((...change) => this.#change(identityOf(pod), ...change));
  }

  /** Replaces the deferred requests of a pod, which are JSON values. Rejects with JOURNAL_UNAVAILABLE. */
  async setResizes(podUid: string, resizes: readonly unknown[]): Promise<void> {
    await this.#change({ podUid }, ({ sandboxId, volumes, transaction, holds, admitted }) => ({
      podUid,
      sandboxId,
      volumes,
      ...(transaction && { transaction }),
      ...(holds && { holds }),
      ...(resizes.length > 0 && { resizes }),
      ...(admitted && { admitted }),
    }));
  }

  /**
   * Assigns the record of a pod to its newest sandbox, and drops the unanswered updates of the removed sandbox: its
   * containers no longer exist. Rejects with JOURNAL_UNAVAILABLE.
   */
  async move(removed: string, newest: PodDescription): Promise<void> {
    this.unanswered.forget(removed);
    await this.#change(identityOf(newest), (record) => record);
  }

  /** Removes the record of a pod, if it belongs to this sandbox. Rejects with JOURNAL_UNAVAILABLE. */
  async forget(pod: PodDescription | Identity): Promise<void> {
    const { podUid, sandboxId } = 'podUid' in pod ? pod : identityOf(pod);
    this.unanswered.forget(sandboxId);
    await this.#changes.run(podUid, async () => {
      if (this.#records.get(podUid)?.sandboxId !== sandboxId) return;
      this.#records.delete(podUid);
      await (await this.journal).remove(podUid);
    });
  }

  /**
   * Changes the record of a pod.
   * @param identity without a sandbox id, the record's own is used when the change runs: deferred requests change
   *   concurrently with transactions
   */
  async #change(
    identity: Pick<Identity, 'podUid'> & Partial<Identity>,
    ...change: Parameters<ChangeRecord>
  ): Promise<void> {
    await this.#restored;
    const journal = await this.journal;
    await this.#changes.run(identity.podUid, () => this.#apply(journal, identity, ...change));
  }

  async #apply(
    journal: Journal,
    identity: Pick<Identity, 'podUid'> & Partial<Identity>,
    ...[change, hasHappened]: Parameters<ChangeRecord>
  ): Promise<void> {
    const { podUid } = identity;
    const before = this.#records.get(podUid);
    const sandboxId = identity.sandboxId ?? before?.sandboxId ?? '';
    const base = before ?? { podUid, sandboxId, volumes: new Map() };
    const changed = change(base);
    if (changed === base && base.sandboxId === sandboxId) return;
    const record = { ...changed, sandboxId };
    const empty = isEmpty(record);
    const refusal = journal.refusal(podUid);
    if (refusal !== undefined) {
      if (empty && before === undefined) return;
      throw refusal;
    }
    if (empty) this.#records.delete(podUid);
    else this.#records.set(podUid, record);
    try {
      const lasting = outlivesBoot(before) || outlivesBoot(record) ? 'durable' : 'this-boot';
      if (empty) await journal.remove(podUid, lasting);
      else await journal.write(record, lasting);
    } catch (error) {
      // A transaction that failed to begin in the journal must not run. One that failed to end has ended: only after a
      // crash before the next write does recovery handle it again.
      if (hasHappened === undefined) this.#putBack(podUid, before);
      // A write may have failed after the disk had accepted it.
      if (!empty || isLate(error)) void this.#writeAgain(podUid, journal);
      throw error;
    } finally {
      if (this.#isLeft(podUid, record)) this.#onUnfinished();
    }
  }

  #putBack(podUid: string, record: PodRecord | undefined): void {
    if (record === undefined) this.#records.delete(podUid);
    else this.#records.set(podUid, record);
  }

  /** Whether a pod's transaction stays in the journal although nothing will end it. */
  #isLeft(podUid: string, written: PodRecord): boolean {
    const record = this.#records.get(podUid);
    return record?.transaction !== undefined && (record !== written || record.transaction.failed !== undefined);
  }

  /** Writes a pod's record again after a rejected change, which may be on the disk already or reach it later. */
  async #writeAgain(podUid: string, journal: Journal): Promise<void> {
    const record = this.#records.get(podUid);
    // The journal's readiness reports a failure, and its checks retry the write.
    await (record === undefined ? journal.remove(podUid) : journal.write(record)).catch(() => undefined);
  }
}

const isLate = (error: unknown): boolean => error instanceof ShimError && error.cause instanceof LateChange;

/** Adds a cgroup's memory.high unless one is recorded: the first is the value before anything lowered it. */
const withHigh = (known: readonly PreviousHigh[], high: PreviousHigh): readonly PreviousHigh[] =>
  known.some(({ cgroup }) => cgroup === high.cgroup) ? known : [...known, high];

/** Returns the steps of two transactions, without repeated ones: clients retry a request until it succeeds. */
const withoutRepeated = (earlier: readonly Step[], steps: readonly Step[]): readonly Step[] => [
  ...earlier,
  ...steps.filter((step) => !earlier.some((other) => isDeepStrictEqual(other, step))),
];

const isUnfinished = ({ transaction, holds }: PodRecord): boolean => transaction !== undefined || holds !== undefined;

const isEmpty = ({ transaction, holds, volumes, resizes, admitted }: PodRecord): boolean =>
  [transaction, holds, resizes, admitted].every((part) => part === undefined) && volumes.size === 0;

/** Whether a part of the record is still valid after a reboot. */
const outlivesBoot = (record: PodRecord | undefined): boolean =>
  record !== undefined &&
  (record.volumes.size > 0 || record.resizes !== undefined || record.transaction?.allocated !== undefined);

const identityOf = ({ metadata, sandboxId }: PodDescription): Identity => ({
  // A pod that crictl creates may have no uid.
  podUid: metadata.uid === '' ? sandboxId : metadata.uid,
  sandboxId,
});
