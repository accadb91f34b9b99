import { randomUUID } from 'node:crypto';
import type { CgroupPath } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { AskedVolume } from './volume-record.ts';
import type { Journal, Readiness } from './store.ts';
import type { JournalledTransaction, PodRecord, PreviousHigh } from './record.ts';
import type { Step } from '../model/index.ts';

/** A pod, as its record names it. `podUid` is the sandbox's id where the pod has no uid. */
export type Identity = Pick<PodRecord, 'podUid' | 'sandboxId'>;

/** What a transaction begins with, beside its steps. */
export interface BeginOptions {
  /** What is known of the pod's volumes. */
  readonly volumes: PodRecord['volumes'];
  /** What is asked for them: it decides their sizes once the transaction is done. */
  readonly asked?: ReadonlyMap<string, AskedVolume>;
  /** Of cgroups that it may lower, each of which would else be another change of the record. */
  readonly highs?: readonly PreviousHigh[];
}

/**
 * What the journal has of each pod, in memory as on the disk, and the changes to it: a transaction begins, turns, ends; a
 * volume's size is allocated; requests wait. All that changes it is done under the pod's lock, but for the requests.
 */
export class PodJournal {
  readonly #journal: Promise<Journal>;
  /** Fulfilled when what an earlier process has left has been read. */
  readonly #restored: Promise<void>;
  readonly #records = new Map<string, PodRecord>();

  /** @param journal being opened: a shim that starts serves calls that need no journal meanwhile */
  constructor(journal: Promise<Journal>) {
    this.#journal = journal;
    this.#restored = this.#restore();
  }

  /** Waits until what an earlier process has left is known. Never rejects. */
  restored(): Promise<void> {
    return this.#restored;
  }

  /** Whether a resize can be journalled now, and why not. */
  async readiness(): Promise<Readiness> {
    return (await this.#journal).readinessNow();
  }

  async #restore(): Promise<void> {
    const journal = await this.#journal;
    for (const record of await journal.load()) this.#records.set(record.podUid, record);
  }

  /** Pods with a transaction that has not ended. */
  unfinished(): readonly Identity[] {
    return [...this.#records.values()].filter(({ transaction }) => transaction !== undefined);
  }

  /** Every pod of which something is kept. */
  identities(): readonly Identity[] {
    return [...this.#records.values()];
  }

  transactionOf(pod: PodDescription): JournalledTransaction | undefined {
    return this.#records.get(identityOf(pod).podUid)?.transaction;
  }

  /** What decides the sizes of a pod's volumes. */
  volumesOf(pod: PodDescription): PodRecord['volumes'] {
    return this.#records.get(identityOf(pod).podUid)?.volumes ?? new Map();
  }

  /** Rejects with JOURNAL_UNAVAILABLE. */
  async setVolumes(pod: PodDescription, volumes: PodRecord['volumes']): Promise<void> {
    await this.#change(identityOf(pod), (record) => ({ ...record, volumes }));
  }

  /** Deferred requests of all pods, by pod uid, as they were given to {@link setResizes}. */
  resizes(): ReadonlyMap<string, readonly unknown[]> {
    return new Map([...this.#records].map(([podUid, { resizes = [] }]) => [podUid, resizes]));
  }

  /**
   * A transaction of these steps is on the disk before its first step. Rejects with JOURNAL_UNAVAILABLE: it must not begin
   * then.
   *
   * An earlier one that could not be undone is not forgotten for it: it is taken back with this one, or stays when this one
   * is undone. Once this one is done its values are the pod's, and what was before does not matter.
   */
  async begin(
    pod: PodDescription,
    steps: readonly Step[],
    { volumes, asked = new Map(), highs = [] }: BeginOptions,
  ): Promise<OpenTransaction> {
    const allocated = asked.size === 0 ? {} : { allocated: Object.fromEntries(asked) };
    const earlier = this.transactionOf(pod);
    const transaction = {
      ...{ id: randomUUID(), startedAt: Date.now(), ...allocated },
      steps: [...(earlier?.steps ?? []), ...steps],
      undoing: earlier !== undefined,
      highs: highs.reduce(withHigh, earlier?.highs ?? []),
    };
    await this.#change(identityOf(pod), (record) => ({ ...record, volumes, transaction }));
    return new OpenTransaction((change) => this.#change(identityOf(pod), change), earlier);
  }

  /** The same for one that was left over. */
  reopen(pod: PodDescription): OpenTransaction {
    return new OpenTransaction((change) => this.#change(identityOf(pod), change));
  }

  /** JSON values. Rejects with JOURNAL_UNAVAILABLE. */
  async setResizes(podUid: string, resizes: readonly unknown[]): Promise<void> {
    await this.#change({ podUid }, ({ sandboxId, volumes, transaction }) => ({
      ...{ podUid, sandboxId, volumes },
      ...(transaction && { transaction }),
      ...(resizes.length > 0 && { resizes }),
    }));
  }

  /** A sandbox is gone, and nothing of its pod is left. Rejects with JOURNAL_UNAVAILABLE. */
  async forget(pod: PodDescription | Identity): Promise<void> {
    const { podUid, sandboxId } = 'podUid' in pod ? pod : identityOf(pod);
    if (this.#records.get(podUid)?.sandboxId !== sandboxId) return;
    this.#records.delete(podUid);
    await (await this.#journal).remove(podUid);
  }

  /** @param identity without a sandbox: the one that is known by then, since requests are kept beside what a transaction does */
  async #change(
    identity: Pick<Identity, 'podUid'> & Partial<Identity>,
    change: (record: PodRecord) => PodRecord,
  ): Promise<void> {
    await this.#restored;
    const journal = await this.#journal;
    const { podUid } = identity;
    const before = this.#records.get(podUid);
    const sandboxId = identity.sandboxId ?? before?.sandboxId ?? '';
    const base = before ?? { podUid, sandboxId, volumes: new Map() };
    const changed = change(base);
    if (changed === base && base.sandboxId === sandboxId) return;
    const record = { ...changed, sandboxId };
    const empty = record.transaction === undefined && record.volumes.size === 0 && record.resizes === undefined;
    if (empty) this.#records.delete(podUid);
    else this.#records.set(podUid, record);
    try {
      await (empty ? journal.remove(podUid, outlives(before) ? 'lasting' : 'in this boot') : journal.write(record));
    } catch (error) {
      // What was to begin does not; what was to end is still there, and found at the next start.
      if (before === undefined) this.#records.delete(podUid);
      else this.#records.set(podUid, before);
      throw error;
    }
  }
}

/** A transaction whose steps are under way. */
export class OpenTransaction {
  readonly #change: (change: (record: PodRecord) => PodRecord) => Promise<void>;
  readonly #earlier: JournalledTransaction | undefined;

  /** @param earlier one that could not be undone, and is still to be when this one is undone too */
  constructor(change: (change: (record: PodRecord) => PodRecord) => Promise<void>, earlier?: JournalledTransaction) {
    this.#change = change;
    this.#earlier = earlier;
  }

  /** What was done is about to be taken back. */
  undoing(): Promise<void> {
    return this.#update(() => ({ undoing: true }));
  }

  /** memory.high of a cgroup is about to be lowered, and has to become this again. */
  lowersHigh(cgroup: CgroupPath, memoryHigh: Limit<Bytes>): Promise<void> {
    return this.#update(({ highs }) => {
      const known = highs.find((high) => high.cgroup === cgroup);
      if (known?.memoryHigh === memoryHigh) return undefined;
      return { highs: [...highs.filter((high) => high !== known), { cgroup, memoryHigh }] };
    });
  }

  /** Taking back has failed: the pod is mended at its next request or at a start. */
  failed(why: string): Promise<void> {
    return this.#update(() => ({ failed: why }));
  }

  /**
   * Nothing is left to do: all was carried out, or all was taken back.
   * @param volumes what is known of the pod's volumes now
   */
  end(how: 'done' | 'undone', volumes: PodRecord['volumes']): Promise<void> {
    return this.#change(({ podUid, sandboxId, resizes }) => ({
      podUid,
      sandboxId,
      ...(how === 'undone' && this.#earlier && { transaction: this.#earlier }),
      volumes,
      ...(resizes && { resizes }),
    }));
  }

  /** `more` gives what changes; undefined for nothing. */
  #update(more: (transaction: JournalledTransaction) => Partial<JournalledTransaction> | undefined): Promise<void> {
    return this.#change((record) => {
      const { transaction } = record;
      if (transaction === undefined) return record;
      const changes = more(transaction);
      return changes === undefined ? record : { ...record, transaction: { ...transaction, ...changes } };
    });
  }
}

/** What was known first is what it was before anything lowered it. */
const withHigh = (known: readonly PreviousHigh[], high: PreviousHigh): readonly PreviousHigh[] =>
  known.some(({ cgroup }) => cgroup === high.cgroup) ? known : [...known, high];

/** Whether a later boot of the machine would go by it. */
const outlives = (record: PodRecord | undefined): boolean =>
  record === undefined ||
  record.volumes.size > 0 ||
  record.resizes !== undefined ||
  record.transaction?.allocated !== undefined;

const identityOf = ({ metadata, sandboxId }: PodDescription): Identity => ({
  // A pod that crictl has made may have no uid.
  podUid: metadata.uid === '' ? sandboxId : metadata.uid,
  sandboxId,
});
