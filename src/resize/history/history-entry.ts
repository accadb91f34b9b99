import type { PodIdentity } from '../../sandbox/index.ts';
import type { ResizeState, ValueChange } from '../model/index.ts';
import type { Requester } from './requester.ts';

/** One resize in its present state, from any source. Times are in milliseconds since the epoch. */
export interface HistoryEntry {
  readonly id: string;
  readonly pod: PodIdentity;
  readonly requester: Requester;
  readonly state: ResizeState;
  /** A Reason of errors, or why the resize was canceled. */
  readonly reason: string | undefined;
  readonly message: string | undefined;
  readonly changes: readonly ValueChange[];
  /** Whether steps had been applied and were rolled back. */
  readonly isRolledBack: boolean;
  readonly createdAt: number;
  readonly changedAt: number;
  /** How often the requester has asked for it with this result. */
  readonly count: number;
}
