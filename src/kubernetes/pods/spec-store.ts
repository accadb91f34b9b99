import type { PodIdentity, PodSpec, PodSpecs } from '../../sandbox/index.ts';
import type { PodAudience } from './audience.ts';
import { type ApiPod, type ApiPodIdentity, keyOf } from './pod.ts';

export interface SpecStoreOptions {
  /** Whether a pod of this node is a static pod, for which a mirror pod may speak. */
  isStatic(sandboxId: string): boolean;
  /** The sizeLimit of a memory-backed volume is known; `isChanged`: another one was known before. Must not throw. */
  sizeLimitsSeen(pod: ApiPodIdentity, isChanged: boolean): void;
}

/** The specs of the pods of this node. */
export class SpecStore implements PodAudience, PodSpecs {
  readonly #specs = new Map<string, { readonly spec: PodSpec; readonly isMirror: boolean }>();

  constructor(private readonly pods: SpecStoreOptions) {}

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
    if (isNew) this.pods.sizeLimitsSeen(pod, before !== undefined);
  }

  /** Called when a pod was added to this node: its spec may have been known before. */
  look(pod: ApiPodIdentity): void {
    const { volumes = [] } = this.#specs.get(keyOf(pod))?.spec ?? {};
    if ([...volumes].some(([, { sizeLimit }]) => sizeLimit !== undefined)) this.pods.sizeLimitsSeen(pod, false);
  }

  gone(pod: ApiPodIdentity): void {
    this.#specs.delete(keyOf(pod));
  }

  of(pod: PodIdentity): PodSpec | undefined {
    const found = this.#specs.get(keyOf(pod));
    return found?.isMirror && !this.pods.isStatic(pod.sandboxId) ? undefined : found?.spec;
  }
}
