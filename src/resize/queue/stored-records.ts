import type { PodIdentity } from '../../sandbox/index.ts';

/** One record for each sandbox. */
export class StoredRecords<StoredRecord extends { readonly pod: PodIdentity }> {
  readonly #bySandbox = new Map<string, StoredRecord>();

  protected record(sandboxId: string): StoredRecord | undefined {
    return this.#bySandbox.get(sandboxId);
  }

  protected put(record: StoredRecord): void {
    this.#bySandbox.set(record.pod.sandboxId, record);
  }

  /** Removes the record of a sandbox. Returns the uid of its pod, if it had one. */
  forget(sandboxId: string): string | undefined {
    const uid = this.record(sandboxId)?.pod.uid;
    this.#bySandbox.delete(sandboxId);
    return uid;
  }

  /** Returns the records of a pod's sandboxes. */
  recordsOf(podUid: string): readonly StoredRecord[] {
    return [...this.#bySandbox.values()].filter(({ pod }) => pod.uid === podUid);
  }
}
