import type { PodIdentity } from '../../sandbox/index.ts';
import { hasEnded, type Resize } from './requests/index.ts';

/** A resize that has not ended, with the state of its attempts. */
export interface ActiveResize {
  /** The resize in its present state. */
  resize: Resize;
  /** Its place among all requests of its pod ({@link NewestValues.arrival}). */
  readonly order: number;
  /** When the next attempt of a deferred resize is due, by {@link Clock.now}. */
  dueAt: number | undefined;
  /** The attempt in progress; resolved when there is none. */
  attempt: Promise<void>;
  /** Whether it is or was deferred, by this process or a previous one. */
  wasDeferred: boolean;
  /** Whether a container of its pod has started since the attempt in progress began. */
  hasStarted: boolean;
  /** Whether the last attempt failed and left something to roll back. */
  isUnfinished: boolean;
  /** Whether a caller cancelled it during an attempt: it is not retried. */
  cancelled: boolean;
  /** Whether its pod was removed during an attempt. */
  podGone: boolean;
  /** Cancels the scheduled retry. */
  stopTimer: () => void;
}

/** What resizectl prints of an id. A shorter beginning is often that of another id, and may be a pod name of hexadecimal letters. */
export const SHORTEST_BEGINNING = 8;

/** Resizes by id: all that have not ended, and the newest that have ended. In memory. */
export class ResizeTable {
  readonly #active = new Map<string, ActiveResize>();
  readonly #ended = new Map<string, Resize>();
  /** The id of the newest resize of each pod. */
  readonly #newest = new Map<string, string>();
  readonly #maxEnded: number;

  constructor(maxEnded: number) {
    this.#maxEnded = maxEnded;
  }

  add(active: ActiveResize): void {
    this.#active.set(active.resize.id, active);
    this.#newest.set(active.resize.pod.sandboxId, active.resize.id);
  }

  /** Moves a resize that has ended to the ended ones, and drops the oldest of them beyond the maximum. */
  end(resize: Resize): void {
    this.#active.delete(resize.id);
    this.#ended.set(resize.id, resize);
    if (this.#ended.size <= this.#maxEnded) return;
    const [oldest] = this.#ended.values();
    if (oldest === undefined) return;
    this.#ended.delete(oldest.id);
    if (this.#newest.get(oldest.pod.sandboxId) === oldest.id) this.#newest.delete(oldest.pod.sandboxId);
  }

  get(id: string): Resize | undefined {
    return this.#active.get(id)?.resize ?? this.#ended.get(id);
  }

  /** Returns the resize with this id, otherwise those whose id begins with it, if it has {@link SHORTEST_BEGINNING} characters. */
  matching(id: string): readonly Resize[] {
    const exact = this.get(id);
    if (exact !== undefined) return [exact];
    if (id.length < SHORTEST_BEGINNING) return [];
    const all = [...this.allActive.map(({ resize }) => resize), ...this.#ended.values()];
    return all.filter((resize) => resize.id.startsWith(id));
  }

  newestOf(sandboxId: string): Resize | undefined {
    const id = this.#newest.get(sandboxId);
    return id === undefined ? undefined : this.get(id);
  }

  active(id: string): ActiveResize | undefined {
    return this.#active.get(id);
  }

  get allActive(): readonly ActiveResize[] {
    return [...this.#active.values()];
  }

  activeOfPod(sandboxId: string): readonly ActiveResize[] {
    return this.allActive.filter(({ resize }) => resize.pod.sandboxId === sandboxId);
  }

  /** Moves the resizes of a pod that have not ended to another sandbox of it. Returns them. */
  move(pod: PodIdentity): readonly ActiveResize[] {
    const moved = this.allActive.filter(({ resize }) => isOtherSandbox(resize.pod, pod));
    for (const active of moved) {
      active.resize = { ...active.resize, pod };
      this.#newest.set(pod.sandboxId, active.resize.id);
    }
    return moved;
  }

  get activeCount(): number {
    return this.#active.size;
  }

  /** Returns the resizes of a pod to store, which a restart of the shim restores. */
  deferrableOf(podUid: string): readonly Resize[] {
    return this.allActive
      .map(({ resize }) => resize)
      .filter(({ pod, defer, state }) => pod.uid === podUid && defer && !hasEnded(state));
  }
}

const isOtherSandbox = (one: PodIdentity, other: PodIdentity): boolean =>
  one.uid === other.uid && one.uid !== '' && one.sandboxId !== other.sandboxId;
