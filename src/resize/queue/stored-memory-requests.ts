import { type MemoryRequests, noMemoryRequests } from './request.ts';
import type { RequestsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** The requests of memory of each pod, as they were last carried out: nothing on the node knows them. */
export class KeptRequests {
  readonly #pods = new Map<string, RequestsRecord>();

  of(sandboxId: string): MemoryRequests {
    return this.#pods.get(sandboxId)?.memory ?? noMemoryRequests;
  }

  /** Those that there will be once these have been carried out. */
  with(sandboxId: string, asked: MemoryRequests): MemoryRequests {
    const before = this.of(sandboxId);
    return { ...before, ...asked, containers: { ...before.containers, ...asked.containers } };
  }

  /** Takes these over those that were there. Gives whether there were any to take. */
  add(pod: PodIdentity, asked: MemoryRequests): boolean {
    if (asked.pod === undefined && Object.keys(asked.containers).length === 0) return false;
    const memory = this.with(pod.sandboxId, asked);
    this.#pods.set(pod.sandboxId, { version: 1, kind: 'memory-requests', pod, memory });
    return true;
  }

  /** Gives the uid of the pod, if there was something to forget. */
  forget(sandboxId: string): string | undefined {
    const uid = this.#pods.get(sandboxId)?.pod.uid;
    this.#pods.delete(sandboxId);
    return uid;
  }

  recordsOf(podUid: string): readonly RequestsRecord[] {
    return [...this.#pods.values()].filter(({ pod }) => pod.uid === podUid);
  }
}
