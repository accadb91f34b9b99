import type { AheadTree, CgroupPath, CgroupTree } from '../../cgroups/index.ts';
import type { Reason } from '../../core/errors/index.ts';
import type { Counters, Log } from '../../observe/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';

/** A memory limit that kubelet has admitted, below what the kernel has. */
export interface Decrease {
  /** As a person would say it: `container web of pod default/shop`. */
  readonly text: string;
  readonly cgroup: CgroupPath;
  readonly from: Limit<Bytes>;
  readonly to: Bytes;
}

/** All of one pod's. */
export interface Decreases {
  /** The same as long as kubelet has admitted nothing else. */
  readonly admitted: string;
  /** Those that are not carried out yet. */
  readonly list: readonly Decrease[];
}

/** How it stands with a pod's decreases. */
export interface DecreaseReport {
  /** Deferred: what is in use is in the way, and cannot be reclaimed. */
  readonly state: 'InProgress' | 'Deferred';
  readonly reason: Reason | undefined;
  readonly message: string;
  /** When it was admitted, or first seen, in milliseconds since the epoch. */
  readonly since: number;
  /** For this, so far. */
  readonly reclaimed: Bytes;
}

export interface DecreaseHelpParts {
  readonly tree: AheadTree & Pick<CgroupTree, 'readMemoryUse'>;
  /** Pods of which kubelet has admitted something that it has not carried out, by uid. */
  readonly pods: () => readonly string[];
  /** Undefined when there is no such pod. */
  readonly decreases: (podUid: string) => Promise<Decreases | undefined>;
  /** Whether a resize of the pod is under way. */
  readonly isBusy: (podUid: string) => boolean;
  /** Resolves when none is. */
  readonly idle: (podUid: string) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly counters: Counters;
}

/** Told of a decrease that waits for what cannot be reclaimed: once for each, and each reason. Must not throw. */
export type DeferredListener = (podUid: string, report: DecreaseReport) => void;
