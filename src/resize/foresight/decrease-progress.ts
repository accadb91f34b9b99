import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { compareLimits, sameMemory } from '../model/index.ts';
import type { Refusal } from './decrease.ts';
import { MAX_REFUSALS } from './decrease-policy.ts';

/** The state of one admitted set of decreases. */
export interface DecreaseProgress {
  readonly admitted: string;
  /** Whether kubelet has asked for the pod's usage, to compare it with the limits, or applies them without a comparison. */
  isAsked: boolean;
  /** When the shim began to help, by the clock. */
  since: number;
  /** When the shim first saw it, in the system's time. */
  readonly seenAt: number;
  reclaimed: number;
  /** Number of attempts, successful or not. */
  times: number;
  /** Earliest time of the next attempt. */
  notBefore: number;
  isStuck: boolean;
  /** Whether the pod's usage was above its limit before kubelet has asked, and was not held since: cAdvisor may have measured it then. */
  wasBlocked: boolean;
  /** Whether usage has been held below all limits at some time. */
  wasHeld: boolean;
  /** Whether a hold was interrupted: it goes on, before usage has climbed back. */
  isInterrupted: boolean;
  /** Number of holds in a row during which another program has raised memory.high. */
  losses: number;
  /** When the hold has begun that a request has ended, in the system's time, until it is known how the request has ended. */
  releasedSince: number | undefined;
  /** How often in a row kubelet's updates have failed, and the last error. */
  refusals: number;
  refusal: Refusal | undefined;
  isOver: boolean;
  /** The limits that were pending at some time, by owner: a container that restarts has another cgroup. */
  readonly asked: Map<string, Bytes>;
  /** When each reason was last reported. */
  readonly reported: Map<string, number>;
}

/** Returns the error with which kubelet's updates fail again and again: reclaim does not help then. */
export const refusalOf = ({ refusals, refusal }: DecreaseProgress): Refusal | undefined =>
  refusals >= MAX_REFUSALS ? refusal : undefined;

/** Whether the kernel has all limits that were pending. A container that does not run, as in an evicted pod, has none. */
export const isApplied = ({ asked }: DecreaseProgress, limits: ReadonlyMap<string, Limit<Bytes>>): boolean =>
  [...asked].every(([owner, to]) => {
    const now = limits.get(owner);
    return now !== undefined && (compareLimits(now, to) <= 0 || sameMemory(now, to));
  });

/** Returns the state of a set of decreases that was just admitted. */
export const newProgress = (admitted: string, since: number, seenAt: number): DecreaseProgress => ({
  admitted,
  isAsked: false,
  since,
  seenAt,
  reclaimed: 0,
  times: 0,
  notBefore: 0,
  isStuck: false,
  wasBlocked: false,
  wasHeld: false,
  isInterrupted: false,
  losses: 0,
  releasedSince: undefined,
  refusals: 0,
  refusal: undefined,
  isOver: false,
  asked: new Map(),
  reported: new Map(),
});
