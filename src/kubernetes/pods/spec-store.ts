import type { PodIdentity, PodSpec, PodSpecs } from '../../sandbox/index.ts';
import type { PodAudience } from './feed.ts';
import { type ApiPod, type ApiPodIdentity, keyOf } from './pod.ts';

/** The specs of the pods of this node. */
export class SpecStore implements PodAudience, PodSpecs {
  #specs = new Map<string, PodSpec>();

  replace(pods: readonly ApiPod[]): void {
    this.#specs = new Map();
    for (const pod of pods) this.present(pod);
  }

  present(pod: ApiPod): void {
    if (pod.spec === undefined) this.gone(pod);
    else this.#specs.set(keyOf(pod), pod.spec);
  }

  gone(pod: ApiPodIdentity): void {
    this.#specs.delete(keyOf(pod));
  }

  of(pod: PodIdentity): PodSpec | undefined {
    return this.#specs.get(keyOf(pod));
  }
}
