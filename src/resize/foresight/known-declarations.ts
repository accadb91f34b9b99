import type { PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type DeclarePodParts, type DeclaredPod, type PodState, declarePod } from '../../sandbox/index.ts';

interface KnownDeclaration {
  /** The containers that ran when the pod was read. */
  readonly running: string;
  readonly declared: DeclaredPod;
}

/**
 * The declarations of pods with a pending resize. A hold checks its pod every second: the backend is asked again only if the pod's
 * entry in kubelet's checkpoint has changed, or other containers run.
 */
export class KnownDeclarations {
  readonly #known = new WeakMap<PodEntry, KnownDeclaration>();

  /** Returns the state with the declared pod. While the backend cannot be asked, with the last known one, or without it. */
  async withDeclared(
    parts: DeclarePodParts,
    pod: PodDescription,
    allocated: PodEntry,
    state: PodState,
  ): Promise<PodState> {
    const running = state.containers.map(({ id }) => id).join();
    const known = this.#known.get(allocated);
    if (known?.running === running) return { ...state, declared: known.declared };
    try {
      const declared = await declarePod(parts, pod);
      this.#known.set(allocated, { running, declared });
      return { ...state, declared };
    } catch {
      return { ...state, ...(known && { declared: known.declared }) };
    }
  }

  /** Returns the declared pod as last read with this entry. */
  of(allocated: PodEntry): DeclaredPod | undefined {
    return this.#known.get(allocated)?.declared;
  }
}
