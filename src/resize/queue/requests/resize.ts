import type { RequestedPod, MemoryRequests } from './request.ts';
import type { PodIdentity, PodState } from '../../../sandbox/index.ts';
import type { HistoryEntry, Requester } from '../../history/index.ts';
import type { ResizeState, StepRecord, ValueChange } from '../../model/index.ts';

/** Why a resize was canceled. */
export type CancelReason = 'CANCELLED' | 'SUPERSEDED' | 'POD_GONE';

/**
 * One resize in its present state. Immutable: each change creates a new object. Times are in milliseconds since the
 * epoch, for users: no pause or order depends on them.
 */
export interface Resize {
  readonly id: string;
  readonly pod: PodIdentity;
  readonly requester: Requester;
  readonly asked: RequestedPod;
  /** Whether it is retried when it does not fit yet. */
  readonly defer: boolean;
  /** Timeout of each attempt. */
  readonly timeoutMs: number;
  readonly state: ResizeState;
  /**
   * A Reason of errors, a CancelReason, or RESTARTED; undefined unless Deferred, Infeasible or Canceled. For a resize that did
   * not fit yet and may not be deferred, the reason why it did not fit.
   */
  readonly reason: string | undefined;
  readonly message: string | undefined;
  /** The steps of the last attempt; of a failed one, the steps that were applied before the rollback. */
  readonly steps: readonly StepRecord[];
  /** Whether the steps of the last attempt were rolled back. */
  readonly isRolledBack: boolean;
  /** What it changes; of one that was rejected, what it would change. Without present values until an attempt has read the pod. */
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
        /** How often the requester has asked for it with this result. */
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
