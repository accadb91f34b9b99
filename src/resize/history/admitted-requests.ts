import type { PodEntry } from '../../kubelet/index.ts';
import type { TotalRequests } from '../admission/index.ts';

/**
 * The requests of pods that a ResizePod has changed. kubelet's record does not have them, and the kernel has no file for a memory
 * request. In memory: after a restart of the shim, kubelet's record counts alone.
 */
export class AdmittedRequests {
  readonly #pods = new Map<string, { readonly requests: TotalRequests; readonly kubelet: string }>();

  /** Pods with changed requests, by uid. */
  get uids(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /**
   * Records a pod's requests. Returns a function that restores the record as it was before, unless it was forgotten or replaced, and
   * that returns whether it has restored it.
   * @param entry what kubelet has admitted for the pod now
   */
  record(podUid: string, requests: TotalRequests, entry: PodEntry | undefined): () => boolean {
    const before = this.#pods.get(podUid);
    const own = { requests, kubelet: keyOf(entry) };
    this.#pods.set(podUid, own);
    return () => {
      // The pod may be gone since.
      if (this.#pods.get(podUid) !== own) return false;
      if (before === undefined) this.#pods.delete(podUid);
      else this.#pods.set(podUid, before);
      return true;
    };
  }

  /** Returns a pod's requests; undefined if none are recorded, or if kubelet has admitted others since. */
  of(podUid: string, entry: PodEntry | undefined): TotalRequests | undefined {
    const found = this.#pods.get(podUid);
    return found?.kubelet === keyOf(entry) ? found.requests : undefined;
  }

  forget(podUid: string): void {
    this.#pods.delete(podUid);
  }
}

const keyOf = (entry: PodEntry | undefined): string =>
  JSON.stringify([[...(entry?.requests?.containers ?? [])], entry?.requests?.pod]);
