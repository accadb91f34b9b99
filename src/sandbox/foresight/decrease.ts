import {
  type CgroupPath,
  type CgroupTree,
  type LowerUsageTree,
  type MemoryUse,
  type PreviousHigh,
  type SwapLimits,
  usageText,
} from '../../cgroups/index.ts';
import {
  type Bytes,
  type Clock,
  type Counters,
  type Limit,
  type Log,
  messageOf,
  Reason,
  ShimError,
} from '../../core/index.ts';
import { compareLimits, sameMemory } from '../plan/amounts.ts';
import { MAX_REFUSALS, stuckFrom } from './decrease-policy.ts';

/** A memory limit that kubelet has admitted, below the present limit in the kernel. */
export interface Decrease {
  /** Readable name of the cgroup's owner: `container web of pod default/shop`. */
  readonly text: string;
  readonly cgroup: CgroupPath;
  readonly from: Limit<Bytes>;
  readonly to: Bytes;
  /** Present for the pod's own limit. */
  readonly isPod?: true;
}

/** The pending decreases of one pod. */
export interface PendingDecreases {
  /** Identifies what kubelet has admitted. Does not change until kubelet admits other limits. */
  readonly admitted: string;
  /** The decreases that are not applied yet. */
  readonly list: readonly Decrease[];
  /** Present memory limits of pod and containers, by {@link Decrease.text}. None for one that does not run. */
  readonly limits: ReadonlyMap<string, Limit<Bytes>>;
  /** The swap limits that kubelet lowers together with them. */
  readonly swapAfter: SwapLimits;
  /** Whether kubelet admitted a limit of the pod itself. kubelet applies it alone, without comparing usage. */
  readonly isPodLevel: boolean;
}

/** The state of a pod's pending decreases. */
export interface DecreaseReport {
  /** Deferred: the memory in use blocks the decrease and cannot be reclaimed. */
  readonly state: 'InProgress' | 'Deferred';
  /** A reason code, or the gRPC code of the runtime's error. */
  readonly reason: string | undefined;
  readonly message: string;
  /** When the shim first saw the decrease admitted, in milliseconds since the epoch. */
  readonly since: number;
  /** Bytes reclaimed for this decrease so far. */
  readonly reclaimed: Bytes;
}

/** The error of a request for a decrease. */
interface Refusal {
  readonly reason: string;
  readonly message: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
}

/** The journal of holds, which restores memory.high after a crash. */
export interface HoldJournal {
  /**
   * Restores the memory.high that an earlier hold left lowered, and records memory.high of these cgroups of a pod.
   * Returns false, and does nothing, while a transaction of the pod is unfinished. Rejects with JOURNAL_UNAVAILABLE and
   * with the errors of reading and writing.
   */
  begin(podUid: string, cgroups: readonly CgroupPath[]): Promise<boolean>;
  /** Records a value to restore, unless it is recorded already. Rejects with JOURNAL_UNAVAILABLE. */
  lowers(podUid: string, high: PreviousHigh): Promise<void>;
  /** Removes the record. Rejects with JOURNAL_UNAVAILABLE. */
  end(podUid: string): Promise<void>;
  /** Reports that a hold has ended and its record stays: memory.high or the record needs recovery. */
  left(podUid: string): void;
}

export interface DecreaseReclaimerOptions {
  readonly tree: LowerUsageTree & Pick<CgroupTree, 'watchMeasuring'>;
  readonly holds: HoldJournal;
  /** Returns the uids of the pods with limits that kubelet has admitted but not actuated. */
  readonly pods: () => readonly string[];
  /** Whether a pod is one of {@link pods}. */
  readonly isPending: (podUid: string) => boolean;
  /** Returns kubelet's entries for a pod. An entry stays the same object as long as its content is the same. */
  readonly entries: (podUid: string) => readonly unknown[];
  /** Returns undefined when there is no such pod. */
  readonly decreases: (podUid: string) => Promise<PendingDecreases | undefined>;
  /** Returns the error of the last request of a pod, if it failed and one of these limits was requested. */
  readonly refusalOf: (podUid: string, list: readonly Decrease[]) => Refusal | undefined;
  /** Whether a resize of the pod is in progress. */
  readonly isBusy: (podUid: string) => boolean;
  /** Resolves once no resize of the pod is in progress. */
  readonly idle: (podUid: string) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly counters: Counters;
}

/**
 * Called when a decrease is deferred: once per decrease and reason, again after five minutes, and when the shim stops
 * reclaiming. When the listener is added, called for each deferred decrease. Must not throw.
 */
export type DeferredListener = (podUid: string, report: DecreaseReport) => void;

/** The state of one admitted set of decreases. */
export interface DecreaseProgress {
  readonly admitted: string;
  /** Whether kubelet asked for the pod's usage to compare it with limits, or needs no comparison. */
  isAsked: boolean;
  /** Start of the reclaim period, by the clock. */
  since: number;
  /** When the shim first saw it, in the system's time. */
  readonly seenAt: number;
  reclaimed: number;
  /** Number of attempts, successful or not. */
  times: number;
  /** Earliest time of the next attempt. */
  notBefore: number;
  isStuck: boolean;
  /** Whether usage was above the limit before kubelet asked: cAdvisor may have measured it. Reset by a hold. */
  wasBlocked: boolean;
  /** Whether usage has been held below all limits at some time. */
  wasHeld: boolean;
  /** Whether a hold was interrupted. It continues before usage rises again. */
  isInterrupted: boolean;
  /** Number of holds in a row during which another program has raised memory.high. */
  losses: number;
  /** Start of the hold that a request ended, in the system's time, until the request's outcome is known. */
  releasedSince: number | undefined;
  /** Number of failed kubelet updates in a row, and the last error. */
  refusals: number;
  refusal: Refusal | undefined;
  isOver: boolean;
  /** The limits that were pending at some time, by owner. Not by cgroup: a restarted container has another cgroup. */
  readonly asked: Map<string, Bytes>;
  /** When each reason was last reported. */
  readonly reported: Map<string, number>;
}

/** Returns the error if kubelet's updates have failed repeatedly: reclaim does not help then. */
export const refusalOf = ({ refusals, refusal }: DecreaseProgress): Refusal | undefined =>
  refusals >= MAX_REFUSALS ? refusal : undefined;

/** Whether the kernel has all pending limits. A container that does not run, as in an evicted pod, has none. */
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

/** Texts for the report, the log and the event that explain why a decrease is deferred. */

/** A decrease with the usage that blocks it. */
export type Blocked = Decrease & { readonly use: MemoryUse };

const toLower = ({ text, from, to }: Decrease): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}`;

const figures = (use: MemoryUse): string =>
  `${use.current} bytes are in use, ${use.unreclaimable} of which cannot be reclaimed ` + `(${usageText(use)})`;

/** Returns the text for a decrease that unreclaimable memory blocks. */
export function stuckMessage(blocked: Blocked): string {
  const { to, use } = blocked;
  const most = stuckFrom(to);
  const { unreclaimable, current } = use;
  return (
    `${toLower(blocked)}, but ${unreclaimable} bytes are in use that cannot be reclaimed ` +
    `(${usageText(use)}; memory.current ${current}): ` +
    (most > 0 ? `expected less than ${most}` : 'usage cannot be held below so small a limit')
  );
}

/** Returns the text for usage that is not below the limit yet and does not fall. */
export const stalledMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but usage does not fall below it while memory is reclaimed: ${figures(blocked.use)}`;

/** Returns the text for usage that has risen to the limit again while it was held. */
export const climbedMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but usage climbs back as fast as memory is reclaimed: ${figures(blocked.use)}`;

/** Returns the text for a memory.high that other programs have raised repeatedly. */
export const lostMessage = (blocked: Blocked): string =>
  `${toLower(blocked)}, but another program raises memory.high, and usage climbs back: ${figures(blocked.use)}`;

/** Returns the text for a decrease that kubelet did not try while usage was below the limit. */
export const expiredMessage = (blocked: Blocked, heldMs: number): string =>
  `${toLower(blocked)}, but has not done so while usage was held below it for ${Math.round(heldMs / 1000)} s: ${figures(blocked.use)}`;

/** Returns the text for usage that could not be brought below the limit, or not be held there. */
export function failedMessage(blocked: Blocked, error: unknown): string {
  const { current, unreclaimable } = blocked.use;
  if (error instanceof ShimError && error.reason === Reason.RECLAIM_TIMEOUT)
    return (
      `${toLower(blocked)}, but ${current} bytes are in use: ` +
      `reclaim frees no more of the ${Math.max(0, current - unreclaimable)} reclaimable bytes`
    );
  return `${toLower(blocked)}, but usage cannot be held below it: ${messageOf(error)}`;
}

/** Returns the text for a decrease that is deferred after a hold. */
export function afterHoldMessage(
  blocked: Blocked,
  end: 'lost' | 'expired' | { readonly error: unknown },
  heldMs: number,
): string {
  if (end === 'lost') return lostMessage(blocked);
  return end === 'expired' ? expiredMessage(blocked, heldMs) : failedMessage(blocked, end.error);
}
