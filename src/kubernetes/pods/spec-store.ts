import type { PodIdentity, PodSpec, PodSpecs } from '../../sandbox/index.ts';
import type { PodAudience } from './audience.ts';
import { type ApiPod, type ApiPodIdentity, keyOf } from './pod.ts';

/** The specs of the pods of this node. */
export class SpecStore implements PodAudience, PodSpecs {
  readonly #specs = new Map<string, { readonly spec: PodSpec; readonly isMirror: boolean }>();

  /**
   * @param isStatic whether a pod of this node is a static pod, for which a mirror pod may speak
   * @param sizeLimitsSeen called when the sizeLimit of a memory-backed volume is known or has changed. Must not throw
   */
  constructor(
    private readonly isStatic: (sandboxId: string) => boolean,
    private readonly sizeLimitsSeen: (pod: ApiPodIdentity) => void = () => undefined,
  ) {}

  replace(pods: readonly ApiPod[]): void {
    const present = new Set(pods.map(keyOf));
    for (const key of this.#specs.keys()) if (!present.has(key)) this.#specs.delete(key);
    for (const pod of pods) this.present(pod);
  }

  present(pod: ApiPod): void {
    const { spec, isMirror } = pod;
    if (spec === undefined) {
      this.gone(pod);
      return;
    }
    const before = this.#specs.get(keyOf(pod))?.spec.volumes;
    this.#specs.set(keyOf(pod), { spec, isMirror });
    const isNew = [...spec.volumes].some(([name, { sizeLimit }]) => before?.get(name)?.sizeLimit !== sizeLimit);
    if (isNew) this.sizeLimitsSeen(pod);
  }

  gone(pod: ApiPodIdentity): void {
    this.#specs.delete(keyOf(pod));
  }

  of(pod: PodIdentity): PodSpec | undefined {
    const found = this.#specs.get(keyOf(pod));
    return found?.isMirror && !this.isStatic(pod.sandboxId) ? undefined : found?.spec;
  }
}
