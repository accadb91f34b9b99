import { type MemoryRequests, noMemoryRequests } from './requests/index.ts';
import type { RequestsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** The memory requests that completed resizes have set, per pod. They are in no cgroup file, so nothing else has them. */
export class StoredMemoryRequests {
  readonly #pods = new Map<string, RequestsRecord>();

  of(sandboxId: string): MemoryRequests {
    return this.#pods.get(sandboxId)?.memory ?? noMemoryRequests;
  }

  /** Returns a pod's memory requests merged with those of a resize. */
  with(sandboxId: string, asked: MemoryRequests): MemoryRequests {
    const before = this.of(sandboxId);
    return { ...before, ...asked, containers: { ...before.containers, ...asked.containers } };
  }

  /** Merges these memory requests into the stored ones. Returns whether there were any to merge. */
  add(pod: PodIdentity, asked: MemoryRequests): boolean {
    if (asked.pod === undefined && Object.keys(asked.containers).length === 0) return false;
    const memory = this.with(pod.sandboxId, asked);
    this.#pods.set(pod.sandboxId, { version: 1, kind: 'memory-requests', pod, memory });
    return true;
  }

  /** Removes a pod's memory requests. Returns the uid of the pod, if it had any. */
  forget(sandboxId: string): string | undefined {
    const uid = this.#pods.get(sandboxId)?.pod.uid;
    this.#pods.delete(sandboxId);
    return uid;
  }

  recordsOf(podUid: string): readonly RequestsRecord[] {
    return [...this.#pods.values()].filter(({ pod }) => pod.uid === podUid);
  }
}
