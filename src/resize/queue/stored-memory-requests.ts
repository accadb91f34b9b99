import type { EntryRequests } from '../../kubelet/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import { memoryRequestIn } from '../model/index.ts';
import { type MemoryRequests, noMemoryRequests } from './requests/index.ts';
import type { RequestsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';
import { StoredRecords } from './stored-records.ts';

/** Returns the requests that kubelet has admitted for a pod, by its uid. Undefined: not known. */
export type KubeletRequests = (podUid: string) => EntryRequests | undefined;

/**
 * The memory requests that completed resizes have set, per pod. They are in no cgroup file, so nothing else has them. kubelet does not
 * know them: a request that kubelet has changed since is newer, and replaces the stored one.
 */
export class StoredMemoryRequests extends StoredRecords<RequestsRecord> {
  readonly #kubeletRequests: KubeletRequests;

  constructor(kubeletRequests: KubeletRequests) {
    super();
    this.#kubeletRequests = kubeletRequests;
  }

  of(sandboxId: string): MemoryRequests {
    const stored = this.record(sandboxId);
    if (stored?.kubelet === undefined) return stored?.memory ?? noMemoryRequests;
    const now = this.#kubeletMemory(stored.pod);
    if (now === undefined) return stored.memory;
    const memory = unchangedSince(stored.memory, stored.kubelet, now);
    // For good: kubelet may go back to the request that it had before.
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
    const entry = this.#kubeletRequests(uid);
    if (entry === undefined) return undefined;
    const containers = [...entry.containers].flatMap(([name, { memory }]): [string, Bytes][] =>
      memory === undefined ? [] : [[name, memory]],
    );
    const pod = entry.pod?.memory;
    return { ...(pod !== undefined && { pod }), containers: Object.fromEntries(containers) };
  }
}

/** Returns the requests whose counterparts are the same before and now. */
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
