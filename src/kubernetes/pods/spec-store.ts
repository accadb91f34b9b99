import type { PodIdentity, PodSpec, PodSpecs } from '../../sandbox/index.ts';
import type { PodAudience } from './audience.ts';
import { type ApiPod, type ApiPodIdentity, keyOf } from './pod.ts';

/** The specs of the pods of this node. */
export class SpecStore implements PodAudience, PodSpecs {
  #specs = new Map<string, { readonly spec: PodSpec; readonly isMirror: boolean }>();

  /** @param isStatic whether a pod of this node is a static pod, for which a mirror pod may speak */
  constructor(private readonly isStatic: (sandboxId: string) => boolean) {}

  replace(pods: readonly ApiPod[]): void {
    this.#specs = new Map();
    for (const pod of pods) this.present(pod);
  }

  present(pod: ApiPod): void {
    const { spec, isMirror } = pod;
    if (spec === undefined) this.gone(pod);
    else this.#specs.set(keyOf(pod), { spec, isMirror });
  }

  gone(pod: ApiPodIdentity): void {
    this.#specs.delete(keyOf(pod));
  }

  of(pod: PodIdentity): PodSpec | undefined {
    const found = this.#specs.get(keyOf(pod));
    return found?.isMirror && !this.isStatic(pod.sandboxId) ? undefined : found?.spec;
  }
}
