import type { Log } from '../../observe/index.ts';
import { KeptAnnotations } from './stored-annotations.ts';
import { KeptRequests } from './stored-memory-requests.ts';
import { type DeferredRecord, type KnownRecord, type ResizeRecord, type ResizeStore, readRecord } from './records.ts';

/** What is kept of pods besides resizes that are to be tried again, and what was kept and cannot be read. */
export class KeptOfPods {
  readonly requests = new KeptRequests();
  readonly annotations = new KeptAnnotations();
  /** By pod uid: a newer shim may have written it, and may come back. */
  readonly #unread = new Map<string, readonly ResizeRecord[]>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Takes up all that a store has, and gives the resizes among it. Rejects when the store cannot be read. */
  async restore(
    store: ResizeStore,
  ): Promise<{ readonly sandboxes: ReadonlySet<string>; readonly deferred: DeferredRecord[] }> {
    const sandboxes = new Set<string>();
    const deferred: DeferredRecord[] = [];
    for (const { podUid, records } of await store.restore()) {
      for (const record of records) {
        const read = readRecord(record, podUid);
        if (typeof read === 'string') {
          this.#setAside(podUid, record, read);
          continue;
        }
        sandboxes.add(read.pod.sandboxId);
        if (read.kind === 'deferred') deferred.push(read);
        else this.#takeUp(read);
      }
    }
    return { sandboxes, deferred };
  }

  #takeUp(record: Exclude<KnownRecord, DeferredRecord>): void {
    if (record.kind === 'memory-requests') this.requests.add(record.pod, record.memory);
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

  /** Of a sandbox that has gone. Gives the uids of the pods of which something was kept. */
  forget(sandboxId: string): ReadonlySet<string> {
    const uids = [this.requests.forget(sandboxId), this.annotations.forget(sandboxId)];
    return new Set(uids.filter((uid) => uid !== undefined));
  }
}
