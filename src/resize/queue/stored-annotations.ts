import type { AnnotationsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** What each pod's annotations in Kubernetes requested last, so that a restart does not request it again. */
export class StoredAnnotations {
  readonly #pods = new Map<string, AnnotationsRecord>();

  of(sandboxId: string): Readonly<Record<string, string>> {
    return this.#pods.get(sandboxId)?.volumes ?? {};
  }

  /** Merges these annotations into the stored ones, by volume. */
  add(pod: PodIdentity, volumes: Readonly<Record<string, string>>): void {
    const all = { ...this.of(pod.sandboxId), ...volumes };
    this.#pods.set(pod.sandboxId, { version: 1, kind: 'annotations', pod, volumes: all });
  }

  /** Removes a pod's annotations. Returns the uid of the pod, if it had any. */
  forget(sandboxId: string): string | undefined {
    const uid = this.#pods.get(sandboxId)?.pod.uid;
    this.#pods.delete(sandboxId);
    return uid;
  }

  recordsOf(podUid: string): readonly AnnotationsRecord[] {
    return [...this.#pods.values()].filter(({ pod }) => pod.uid === podUid);
  }
}
