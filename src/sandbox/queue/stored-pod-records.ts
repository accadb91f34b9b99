import type { Bytes, Log } from '../../core/index.ts';
import type { EntryRequests } from '../../kubelet/index.ts';
import { type MemoryRequests, memoryRequestIn } from '../plan/resize-request.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import {
  type AnnotationsRecord,
  type DeferredRecord,
  type KnownRecord,
  type RequestsRecord,
  type ResizeRecord,
  type ResizeStore,
  readRecord,
} from './records.ts';
import { noMemoryRequests } from './request.ts';

/** One record for each sandbox. */
class StoredRecords<StoredRecord extends { readonly pod: PodIdentity }> {
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

/** Returns the requests that kubelet has admitted for a pod, by its uid. Undefined: not known. */
export type KubeletRequests = (podUid: string) => EntryRequests | undefined;

/**
 * The memory requests that completed resizes have set, per pod. No cgroup file contains them, so they are stored here.
 * kubelet does not know them: a request that kubelet has changed since is newer, and replaces the stored one.
 */
class StoredMemoryRequests extends StoredRecords<RequestsRecord> {
  constructor(private readonly kubeletRequests: KubeletRequests) {
    super();
  }

  of(sandboxId: string): MemoryRequests {
    const stored = this.record(sandboxId);
    if (stored?.kubelet === undefined) return stored?.memory ?? noMemoryRequests;
    const now = this.#kubeletMemory(stored.pod);
    if (now === undefined) return stored.memory;
    const memory = unchangedSince(stored.memory, stored.kubelet, now);
    // Stored permanently: kubelet may return to its previous request.
    this.put({ ...stored, memory, kubelet: now });
    return isEmpty(memory) ? noMemoryRequests : memory;
  }

  /** Returns a pod's memory requests merged with those of a resize. */
  with(sandboxId: string, asked: MemoryRequests): MemoryRequests {
    const before = this.of(sandboxId);
    return { ...before, ...asked, containers: { ...before.containers, ...asked.containers } };
  }

  /** Merges these memory requests into the stored ones. Returns whether there were any to merge. */
  add(pod: PodIdentity, asked: MemoryRequests): boolean {
    if (isEmpty(asked)) return false;
    const memory = this.with(pod.sandboxId, asked);
    const kubelet = this.#kubeletMemory(pod);
    this.put({ version: 1, kind: 'memory-requests', pod, memory, ...(kubelet && { kubelet }) });
    return true;
  }

  /** Adds the record of an earlier process. */
  restore(record: RequestsRecord): void {
    this.put(record);
  }

  #kubeletMemory({ uid }: PodIdentity): MemoryRequests | undefined {
    const entry = this.kubeletRequests(uid);
    if (entry === undefined) return undefined;
    const containers = [...entry.containers].flatMap(([name, { memory }]): [string, Bytes][] =>
      memory === undefined ? [] : [[name, memory]],
    );
    const pod = entry.pod?.memory;
    return { ...(pod !== undefined && { pod }), containers: Object.fromEntries(containers) };
  }
}

/** Returns the requests for which kubelet's requests have not changed. */
function unchangedSince(
  { pod, containers }: MemoryRequests,
  before: MemoryRequests,
  now: MemoryRequests,
): MemoryRequests {
  const isSame = (name: string): boolean => memoryRequestIn(before, name) === memoryRequestIn(now, name);
  return {
    ...(pod !== undefined && before.pod === now.pod && { pod }),
    containers: Object.fromEntries(Object.entries(containers).filter(([name]) => isSame(name))),
  };
}

const isEmpty = ({ pod, containers }: MemoryRequests): boolean =>
  pod === undefined && Object.keys(containers).length === 0;

/** The last request in each pod's annotations, so that a restart does not request it again. */
class StoredAnnotations extends StoredRecords<AnnotationsRecord> {
  of(sandboxId: string): Readonly<Record<string, string>> {
    return this.record(sandboxId)?.volumes ?? {};
  }

  /** Merges these annotations into the stored ones, by volume. */
  add(pod: PodIdentity, volumes: Readonly<Record<string, string>>): void {
    const all = { ...this.of(pod.sandboxId), ...volumes };
    this.put({ version: 1, kind: 'annotations', pod, volumes: all });
  }

  /** Moves the annotations of a pod from its other sandboxes to this one. Returns whether there were any. */
  move(pod: PodIdentity): boolean {
    if (pod.uid === '') return false;
    const others = this.recordsOf(pod.uid).filter(({ pod: { sandboxId } }) => sandboxId !== pod.sandboxId);
    if (others.length === 0) return false;
    let volumes: Readonly<Record<string, string>> = {};
    for (const other of others) {
      volumes = { ...volumes, ...other.volumes };
      this.forget(other.pod.sandboxId);
    }
    this.add(pod, { ...volumes, ...this.of(pod.sandboxId) });
    return true;
  }
}

interface RestoredRecords {
  /** The sandboxes that have records, and their pods. */
  readonly sandboxes: ReadonlySet<string>;
  readonly podUids: ReadonlySet<string>;
  readonly deferred: DeferredRecord[];
}

/** The record of a pod in addition to deferred resizes: memory requests, annotations, and unreadable records. */
export class StoredPodRecords {
  readonly requests: StoredMemoryRequests;
  readonly annotations = new StoredAnnotations();
  /** Unreadable records by pod uid. They stay in the store: a newer shim version may have written them. */
  readonly #unread = new Map<string, readonly ResizeRecord[]>();

  constructor(
    private readonly log: Log,
    kubeletRequests: KubeletRequests,
  ) {
    this.requests = new StoredMemoryRequests(kubeletRequests);
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
    this.log.warn({ uid: podUid, error: fault }, 'stored resize record unreadable; left unchanged');
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
