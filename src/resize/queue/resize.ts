import type { AskedPod, MemoryRequests } from './request.ts';
import type { PodIdentity, PodState } from '../../sandbox/index.ts';
import type { ResizeState, StepRecord } from '../model/index.ts';

/** Why a resize has been canceled. */
export type CancelReason = 'CANCELLED' | 'SUPERSEDED' | 'POD_GONE';

/** One resize as it stands. Never changed: each change makes a new one. Times in milliseconds since the epoch. */
export interface Resize {
  readonly id: string;
  readonly pod: PodIdentity;
  readonly asked: AskedPod;
  /** Whether it is tried again when it does not fit yet. */
  readonly defer: boolean;
  /** How long each try may take. */
  readonly timeoutMs: number;
  readonly state: ResizeState;
  /**
   * A Reason of errors, a CancelReason, or RESTARTED; undefined unless Deferred, Infeasible or Canceled. Of one that did not fit yet
   * and was not to be tried again, why it did not fit.
   */
  readonly reason: string | undefined;
  readonly message: string | undefined;
  /** Of the last try; of one that failed, what was carried out before it was undone. */
  readonly steps: readonly StepRecord[];
  /** Set once Completed. */
  readonly before: PodState | undefined;
  readonly after: PodState | undefined;
  /** What is kept of a pod's values beside what its state has. Set once Completed. */
  readonly memoryRequests: RequestsAround | undefined;
  readonly createdAt: number;
  readonly changedAt: number;
  readonly tries: number;
  /** When a Deferred one is tried again. */
  readonly nextTryAt: number | undefined;
}

/** The requests of memory before and after a resize. */
export interface RequestsAround {
  readonly before: MemoryRequests;
  readonly after: MemoryRequests;
}

/** How many resizes have been asked for, and how they ended. */
export interface ResizeCounts {
  readonly proposed: number;
  readonly infeasible: number;
  readonly completed: number;
  readonly canceled: number;
}

/** What watchers are told. */
export interface ResizeEvent {
  readonly resize: string;
  readonly pod: PodIdentity;
  readonly at: number;
  readonly what:
    | {
        readonly kind: 'state';
        readonly state: ResizeState;
        readonly reason: string | undefined;
        readonly message: string | undefined;
      }
    | { readonly kind: 'step'; readonly record: StepRecord };
}

export function hasEnded(state: ResizeState): boolean {
  return state === 'Infeasible' || state === 'Completed' || state === 'Canceled';
}
