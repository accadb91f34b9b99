import type { CgroupPath, CgroupTree, LowerUsageTree, PreviousHigh, SwapLimits } from '../../cgroups/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';

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
  /** Identifies what kubelet has admitted: equal as long as kubelet admits nothing else. */
  readonly admitted: string;
  /** The decreases that are not applied yet. */
  readonly list: readonly Decrease[];
  /** The memory limits that the pod and its containers have now, by {@link Decrease.text}. One that does not run has none. */
  readonly limits: ReadonlyMap<string, Limit<Bytes>>;
  /** The limits on swap that kubelet lowers with them. */
  readonly swapAfter: SwapLimits;
  /** Whether a limit of the pod itself is admitted. kubelet applies such a limit alone without a comparison: it asks for no usage. */
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

/** The error of a request that was to apply a decrease. */
export interface Refusal {
  readonly reason: string;
  readonly message: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
}

/** The journal of holds: what restores memory.high after a crash. */
export interface HoldJournal {
  /**
   * Restores what an earlier hold has left, and records memory.high of these cgroups of a pod. Returns false, and does nothing, while
   * a transaction of the pod is unfinished. Rejects with JOURNAL_UNAVAILABLE and with the errors of reading and writing.
   */
  begin(podUid: string, cgroups: readonly CgroupPath[]): Promise<boolean>;
  /** Records a value to restore, unless it is recorded already. Rejects with JOURNAL_UNAVAILABLE. */
  lowers(podUid: string, high: PreviousHigh): Promise<void>;
  /** Removes the record. Rejects with JOURNAL_UNAVAILABLE. */
  end(podUid: string): Promise<void>;
  /** Reports that a hold has ended and its record stays: memory.high or the record has to be recovered. */
  left(podUid: string): void;
}

export interface DecreaseReclaimerParts {
  readonly tree: LowerUsageTree & Pick<CgroupTree, 'watchMeasuring'>;
  readonly holds: HoldJournal;
  /** Returns the uids of the pods with limits that kubelet has admitted and not actuated. */
  readonly pods: () => readonly string[];
  /** Whether a pod is one of {@link pods}. */
  readonly isPending: (podUid: string) => boolean;
  /** Returns kubelet's entries for a pod. An entry is the same object as long as its content is the same. */
  readonly entries: (podUid: string) => readonly unknown[];
  /** Returns undefined when there is no such pod. */
  readonly decreases: (podUid: string) => Promise<PendingDecreases | undefined>;
  /** Returns the error of the last request of a pod, if it has failed and one of these limits has been asked for. */
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
 * Called when a decrease is deferred: once per decrease and reason, again after five minutes, and when it is given up; also
 * when the listener is added, for what is deferred then. Must not throw.
 */
export type DeferredListener = (podUid: string, report: DecreaseReport) => void;
