import type { AnnotationsRecord } from './records.ts';
import type { PodIdentity } from '../../sandbox/index.ts';
import { StoredRecords } from './stored-records.ts';

/** What each pod's annotations in Kubernetes requested last, so that a restart does not request it again. */
export class StoredAnnotations extends StoredRecords<AnnotationsRecord> {
  of(sandboxId: string): Readonly<Record<string, string>> {
    return this.record(sandboxId)?.volumes ?? {};
  }

  /** Merges these annotations into the stored ones, by volume. */
  add(pod: PodIdentity, volumes: Readonly<Record<string, string>>): void {
    const all = { ...this.of(pod.sandboxId), ...volumes };
    this.put({ version: 1, kind: 'annotations', pod, volumes: all });
  }

  /** Takes the annotations of a pod over from its other sandboxes to this one. Returns whether there were any. */
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
