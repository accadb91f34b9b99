import type { PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type CgroupTree, containerIdOf } from '../../cgroups/index.ts';
import {
  type DeclarePodParts,
  type DeclaredPod,
  type PodState,
  declarePod,
  podCgroup,
  readPod,
} from '../../sandbox/index.ts';

interface KnownDeclaration {
  /** The containers that had a cgroup when the pod was declared. */
  readonly present: string;
  readonly declared: DeclaredPod;
}

/**
 * The declarations of pods with a pending resize. A hold checks its pod every second: the backend is asked again only if the pod's
 * entry in kubelet's checkpoint has changed, or other containers have cgroups.
 */
export class KnownDeclarations {
  readonly #known = new WeakMap<PodEntry, KnownDeclaration>();

  /**
   * Reads the live values of a pod with its declaration, without the cgroups that ended containers have left. While the backend
   * cannot be asked, with the last known declaration, or without one. Throws as {@link readPod}.
   */
  async readPod(
    parts: DeclarePodParts & { readonly tree: CgroupTree },
    pod: PodDescription,
    allocated: PodEntry,
  ): Promise<PodState> {
    const present = parts.tree.children(podCgroup(pod)).flatMap((name) => containerIdOf(name) ?? []);
    return readPod(parts.tree, pod, [], await this.#declared(parts, pod, allocated, present.join()));
  }

  async #declared(
    parts: DeclarePodParts,
    pod: PodDescription,
    allocated: PodEntry,
    present: string,
  ): Promise<DeclaredPod | undefined> {
    const known = this.#known.get(allocated);
    if (known?.present === present) return known.declared;
    try {
      const declared = await declarePod(parts, pod);
      this.#known.set(allocated, { present, declared });
      return declared;
    } catch {
      return known?.declared;
    }
  }

  /** Returns the declared pod as last read with this entry. */
  of(allocated: PodEntry): DeclaredPod | undefined {
    return this.#known.get(allocated)?.declared;
  }
}
