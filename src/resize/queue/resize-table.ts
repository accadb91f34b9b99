import type { Resize } from './resize.ts';
import { hasEnded } from './resize.ts';

/** A resize that has not ended, with what goes on about it. */
export interface Live {
  /** As it stands. */
  resize: Resize;
  /** The order in which resizes were asked for. */
  readonly order: number;
  /** The try under way; resolved when there is none. */
  attempt: Promise<void>;
  /** Whether it has been deferred, now or before: by this shim or an earlier one. */
  wasDeferred: boolean;
  /** Whether it has been cancelled while it was under way: it is not tried again. */
  cancelled: boolean;
  /** Whether its pod went while it was under way. */
  podGone: boolean;
  /** Takes back the next try. */
  stopTimer: () => void;
}

/** Resizes by id: all that have not ended, and the last ones of those that have. */
export class ResizeBook {
  readonly #live = new Map<string, Live>();
  readonly #ended = new Map<string, Resize>();
  /** The newest resize of each pod, as far as it is kept. */
  readonly #newest = new Map<string, string>();
  /** Of each pod with resizes that have not ended: the newest that has been carried out or deferred. */
  readonly #settled = new Map<string, { readonly order: number; readonly id: string }>();
  readonly #keepEnded: number;

  constructor(keepEnded: number) {
    this.#keepEnded = keepEnded;
  }

  add(live: Live): void {
    this.#live.set(live.resize.id, live);
    this.#newest.set(live.resize.pod.sandboxId, live.resize.id);
  }

  /** To be called when a resize has ended: from now on it is among those that have. */
  end(resize: Resize): void {
    this.#live.delete(resize.id);
    if (this.liveOfPod(resize.pod.sandboxId).length === 0) this.#settled.delete(resize.pod.sandboxId);
    this.#ended.set(resize.id, resize);
    if (this.#ended.size <= this.#keepEnded) return;
    const [oldest] = this.#ended.values();
    if (oldest === undefined) return;
    this.#ended.delete(oldest.id);
    if (this.#newest.get(oldest.pod.sandboxId) === oldest.id) this.#newest.delete(oldest.pod.sandboxId);
  }

  get(id: string): Resize | undefined {
    return this.#live.get(id)?.resize ?? this.#ended.get(id);
  }

  newestOf(sandboxId: string): Resize | undefined {
    const id = this.#newest.get(sandboxId);
    return id === undefined ? undefined : this.get(id);
  }

  live(id: string): Live | undefined {
    return this.#live.get(id);
  }

  /** Notes that this one has been carried out or deferred. */
  settle({ resize, order }: Live): void {
    const { sandboxId } = resize.pod;
    if (order > (this.#settled.get(sandboxId)?.order ?? 0)) this.#settled.set(sandboxId, { order, id: resize.id });
  }

  /** The id of a newer resize of the same pod that has been carried out or deferred before this one was. */
  settledAfter({ resize, order }: Live): string | undefined {
    const newest = this.#settled.get(resize.pod.sandboxId);
    return newest !== undefined && newest.order > order ? newest.id : undefined;
  }

  get allLive(): readonly Live[] {
    return [...this.#live.values()];
  }

  liveOfPod(sandboxId: string): readonly Live[] {
    return this.allLive.filter(({ resize }) => resize.pod.sandboxId === sandboxId);
  }

  get liveCount(): number {
    return this.#live.size;
  }

  /** Those of a pod that are to outlive the shim. */
  deferringOf(podUid: string): readonly Resize[] {
    return this.allLive
      .map(({ resize }) => resize)
      .filter(({ pod, defer, state }) => pod.uid === podUid && defer && !hasEnded(state));
  }
}
