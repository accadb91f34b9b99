import type { PodVolumes, VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes, CpuWeight } from '../../core/quantities/index.ts';
import type { CgroupLoad } from '../../cgroups/index.ts';
import type { PodOutcome } from '../history/index.ts';
import type { Explanation, KnownValues } from '../model/index.ts';
import type { DeclaredPod, EffectiveLimits, ListedContainers } from '../../sandbox/index.ts';
import type { DecreaseReport } from '../foresight/index.ts';

/**
 * The actual values of a pod or a container: its limits, its usage and its weight. Undefined: unknown, or the
 * controller is not enabled.
 */
export interface ActualValues extends EffectiveLimits {
  readonly memoryUsed: Bytes | undefined;
  readonly weight: CpuWeight | undefined;
  /** Memory that cannot be reclaimed, CPU time, and how long its tasks wait. Absent: not read. */
  readonly load?: CgroupLoad;
}

/** The actual values of a pod. */
export interface PodView {
  readonly limits: ActualValues;
  /** Running containers by name, without the sandbox container. */
  readonly containers: readonly { readonly id: string; readonly name: string; readonly limits: ActualValues }[];
  /** By name. */
  readonly volumes: readonly {
    readonly name: string;
    readonly size: Bytes;
    readonly used: Bytes;
    readonly policy: VolumePolicy;
  }[];
  /** The result of the requests since the start of the shim. */
  readonly outcome: Pick<PodOutcome, 'desired' | 'allocated' | 'actuated' | 'volumeErrors'>;
  /** A failure that the pod has not been recovered from, e.g. UNDO_FAILED. */
  readonly lastError: Explanation | undefined;
  /** The resize that kubelet has admitted and not actuated; absent if none is known. */
  readonly kubelet?: PendingKubeletResize;
  /** The pod as it is declared. */
  readonly declared?: DeclaredPod;
}

/** The pending kubelet resize of a pod. */
export interface PendingKubeletResize {
  readonly values: KnownValues<Bytes>;
  /** The state of a memory decrease that usage blocks. */
  readonly decrease: DecreaseReport | undefined;
}

/** What is read once for the descriptions of all pods. */
export interface PodListing {
  /** The pod's containers. If they have changed since, they are listed again. */
  readonly containers: ListedContainers;
  readonly volumes: PodVolumes;
}

/**
 * Reads a pod's actual values. Rejects with a ShimError when they cannot be read; NOT_FOUND when the pod is gone.
 * @param listed what the caller has just read for all pods, this one included
 * @param signal aborts when nobody waits for the values any more: calls to the backend end then
 */
export type ReadPodView = (sandboxId: string, listed?: PodListing, signal?: AbortSignal) => Promise<PodView>;
