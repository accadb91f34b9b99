import type { AnnotationsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** Of each pod, what its annotations in Kubernetes have last asked for: so a restart does not ask again. */
export class KeptAnnotations {
  readonly #pods = new Map<string, AnnotationsRecord>();

  of(sandboxId: string): Readonly<Record<string, string>> {
    return this.#pods.get(sandboxId)?.volumes ?? {};
  }

  /** Takes these over those that were there, by volume. */
  add(pod: PodIdentity, volumes: Readonly<Record<string, string>>): void {
    const all = { ...this.of(pod.sandboxId), ...volumes };
    this.#pods.set(pod.sandboxId, { version: 1, kind: 'annotations', pod, volumes: all });
  }

  /** Gives the uid of the pod, if there was something to forget. */
  forget(sandboxId: string): string | undefined {
    const uid = this.#pods.get(sandboxId)?.pod.uid;
    this.#pods.delete(sandboxId);
    return uid;
  }

  recordsOf(podUid: string): readonly AnnotationsRecord[] {
    return [...this.#pods.values()].filter(({ pod }) => pod.uid === podUid);
  }
}
