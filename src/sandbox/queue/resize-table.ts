import type { HistoryEntry, Requester } from '../history/history-entry.ts';
import type { NewestValues, PodField, Writer } from '../history/newest-values.ts';
import type { MemoryRequests, ResizeState } from '../plan/resize-request.ts';
import type { StepRecord } from '../plan/step.ts';
import type { ValueChange } from '../plan/value-changes.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import type { PodState } from '../pods/pod-state.ts';
import { type RequestedPod } from './request.ts';
import { fieldsOf, withoutFields } from './requested-fields.ts';

/** Why a resize was canceled. */
export type CancelReason = 'CANCELLED' | 'SUPERSEDED' | 'POD_GONE';

/**
 * One resize in its present state. Immutable: each change creates a new object. Times are in milliseconds since the
 * epoch, for display only: no pause or order depends on them.
 */
export interface Resize {
  readonly id: string;
  readonly pod: PodIdentity;
  readonly requester: Requester;
  readonly asked: RequestedPod;
  /** Whether the resize is retried when it does not fit yet. */
  readonly defer: boolean;
  /** Timeout of each attempt. */
  readonly timeoutMs: number;
  readonly state: ResizeState;
  /**
   * A Reason of errors, a CancelReason, or RESTARTED; undefined unless Deferred, Infeasible or Canceled. For a resize
   * that did not fit yet and may not be deferred, the reason why it did not fit.
   */
  readonly reason: string | undefined;
  readonly message: string | undefined;
  /** The steps of the last attempt; of a failed one, the steps that were applied before the rollback. */
  readonly steps: readonly StepRecord[];
  /** Whether the steps of the last attempt were rolled back. */
  readonly isRolledBack: boolean;
  /** The changes; a rejected resize has those it requested. No present values until an attempt reads the pod. */
  readonly changes: readonly ValueChange[];
  /** Set once Completed. */
  readonly before: PodState | undefined;
  readonly after: PodState | undefined;
  /** The memory requests, which are in no cgroup and so not in `before` and `after`. Set once Completed. */
  readonly memoryRequests: RequestsAround | undefined;
  readonly createdAt: number;
  readonly changedAt: number;
  readonly tries: number;
  /** Time of the next attempt of a Deferred resize. */
  readonly nextTryAt: number | undefined;
}

/** The memory requests before and after a resize. */
export interface RequestsAround {
  readonly before: MemoryRequests;
  readonly after: MemoryRequests;
}

/** The number of requested resizes, and of resizes by outcome. */
export interface ResizeCounts {
  readonly proposed: number;
  readonly infeasible: number;
  readonly completed: number;
  readonly canceled: number;
}

/** An event for watchers: a resize entered a state, or a step ended. */
export interface ResizeEvent {
  readonly resize: string;
  readonly pod: PodIdentity;
  readonly requester: Requester;
  readonly at: number;
  readonly what:
    | {
        readonly kind: 'state';
        readonly state: ResizeState;
        readonly reason: string | undefined;
        readonly message: string | undefined;
        readonly changes: readonly ValueChange[];
        /** Whether steps had been applied and were rolled back. */
        readonly isRolledBack: boolean;
        /** Number of times that the requester asked for this resize with this result. */
        readonly count: number;
      }
    | { readonly kind: 'step'; readonly record: StepRecord };
}

/** Whether a resize with this state does not change any more. */
export function hasEnded(state: ResizeState): boolean {
  return state === 'Infeasible' || state === 'Completed' || state === 'Canceled';
}

/** Returns a resize in its present state, as the history stores it. */
export function historyEntry(resize: Resize): HistoryEntry {
  const { id, pod, requester, state, reason, message, changes, isRolledBack, createdAt, changedAt } = resize;
  return { id, pod, requester, state, reason, message, changes, isRolledBack, createdAt, changedAt, count: 1 };
}

/** Returns the event for the present state of a resize. */
export function stateEvent(entry: HistoryEntry): ResizeEvent {
  const { id, pod, requester, changedAt, state, reason, message, changes, isRolledBack, count } = entry;
  const what = { kind: 'state', state, reason, message, changes, isRolledBack, count } as const;
  return { resize: id, pod, requester, at: changedAt, what };
}

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

/** Length of ids that resizectl prints. Shorter prefixes are often ambiguous, or equal to a pod's name. */
export const SHORTEST_BEGINNING = 8;

/** Resizes by id: all that have not ended, and the newest that have ended. In memory. */
export class ResizeTable {
  readonly #active = new Map<string, ActiveResize>();
  readonly #ended = new Map<string, Resize>();
  /** The id of the newest resize of each pod. */
  readonly #newest = new Map<string, string>();

  constructor(private readonly maxEnded: number) {}

  add(active: ActiveResize): void {
    this.#active.set(active.resize.id, active);
    this.#newest.set(active.resize.pod.sandboxId, active.resize.id);
  }

  /** Moves a resize that has ended to the ended ones, and drops the oldest of them beyond the maximum. */
  end(resize: Resize): void {
    this.#active.delete(resize.id);
    this.#ended.set(resize.id, resize);
    if (this.#ended.size <= this.maxEnded) return;
    const [oldest] = this.#ended.values();
    if (oldest === undefined) return;
    this.#ended.delete(oldest.id);
    if (this.#newest.get(oldest.pod.sandboxId) === oldest.id) this.#newest.delete(oldest.pod.sandboxId);
  }

  get(id: string): Resize | undefined {
    return this.#active.get(id)?.resize ?? this.#ended.get(id);
  }

  /** Returns the resize with this id, otherwise those with this prefix (at least {@link SHORTEST_BEGINNING}). */
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

  /** Moves a pod's resizes that have not ended to another sandbox of the pod. Returns them. */
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

export interface SupersededOptions {
  readonly table: ResizeTable;
  readonly newest: NewestValues;
}

/** Returns a resize as the writer of its fields. */
export const writerOf = ({ resize, order }: ActiveResize): Writer => ({ arrival: order, text: `resize ${resize.id}` });

/**
 * Removes the fields that newer requests have set, if these were applied or are deferred resizes. Returns one of these
 * requests if no field remains, otherwise undefined.
 */
export function removeSuperseded({ table, newest }: SupersededOptions, active: ActiveResize): Writer | undefined {
  const { asked, pod } = active.resize;
  const deferred = table
    .activeOfPod(pod.sandboxId)
    .filter(({ order, resize }) => order > active.order && resize.state === 'Deferred');
  const newerWriter = (field: PodField): Writer | undefined => {
    const other = deferred.find(({ resize }) => fieldsOf(resize.asked).has(field));
    return other === undefined ? newest.newerWriter(pod.sandboxId, field, active.order) : writerOf(other);
  };
  const [newer] = [...fieldsOf(asked)].flatMap((field) => newerWriter(field) ?? []);
  if (newer === undefined) return undefined;
  const left = withoutFields(asked, (field) => newerWriter(field) !== undefined);
  if (left === undefined) return newer;
  active.resize = { ...active.resize, asked: left };
  return undefined;
}

/** Whether a newer resize that has not ended sets a field of this one. */
export function hasNewer(table: ResizeTable, active: ActiveResize): boolean {
  const fields = fieldsOf(active.resize.asked);
  return table
    .activeOfPod(active.resize.pod.sandboxId)
    .some(
      ({ order, resize }) => order > active.order && [...fieldsOf(resize.asked)].some((field) => fields.has(field)),
    );
}
