import type { Log } from '../../observe/index.ts';
import { StoredAnnotations } from './stored-annotations.ts';
import { type KubeletRequests, StoredMemoryRequests } from './stored-memory-requests.ts';
import { type DeferredRecord, type KnownRecord, type ResizeRecord, type ResizeStore, readRecord } from './records.ts';

interface RestoredRecords {
  /** The pods, and their sandboxes, that have records. */
  readonly sandboxes: ReadonlySet<string>;
  readonly podUids: ReadonlySet<string>;
  readonly deferred: DeferredRecord[];
}

/** What is stored per pod in addition to deferred resizes: memory requests, annotations, and unreadable records. */
export class StoredPodRecords {
  readonly requests: StoredMemoryRequests;
  readonly annotations = new StoredAnnotations();
  /** Unreadable records by pod uid. They stay in the store, because a newer version of the shim may have written them. */
  readonly #unread = new Map<string, readonly ResizeRecord[]>();
  readonly #log: Log;

  constructor(log: Log, kubeletRequests: KubeletRequests) {
    this.requests = new StoredMemoryRequests(kubeletRequests);
    this.#log = log;
  }

  /** Restores everything from a store, and returns the deferred resizes. Rejects when the store cannot be read. */
  async restore(store: Pick<ResizeStore, 'restore'>): Promise<RestoredRecords> {
    const sandboxes = new Set<string>();
    const podUids = new Set<string>();
    const deferred: DeferredRecord[] = [];
    for (const { podUid, records } of await store.restore()) {
      for (const record of records) {
        const read = readRecord(record, podUid);
        if (typeof read === 'string') {
          this.#setAside(podUid, record, read);
          continue;
        }
        sandboxes.add(read.pod.sandboxId);
        podUids.add(podUid);
        if (read.kind === 'deferred') deferred.push(read);
        else this.#add(read);
      }
    }
    return { sandboxes, podUids, deferred };
  }

  #add(record: Exclude<KnownRecord, DeferredRecord>): void {
    if (record.kind === 'memory-requests') this.requests.restore(record);
    else this.annotations.add(record.pod, record.volumes);
  }

  #setAside(podUid: string, record: unknown, fault: string): void {
    this.#log.warn({ uid: podUid, error: fault }, 'stored resize record unreadable; left unchanged');
    this.#unread.set(podUid, [...(this.#unread.get(podUid) ?? []), record as ResizeRecord]);
  }

  recordsOf(podUid: string): readonly ResizeRecord[] {
    return [
      ...this.requests.recordsOf(podUid),
      ...this.annotations.recordsOf(podUid),
      ...(this.#unread.get(podUid) ?? []),
    ];
  }

  /** Removes the values of a sandbox that is gone. Returns the uids of the pods that had any. */
  forget(sandboxId: string): ReadonlySet<string> {
    const uids = [this.requests.forget(sandboxId), this.annotations.forget(sandboxId)];
    return new Set(uids.filter((uid) => uid !== undefined));
  }
}
