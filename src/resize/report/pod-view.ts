import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes, CpuWeight } from '../../core/quantities/index.ts';
import type { CgroupLoad } from '../../cgroups/index.ts';
import type { EffectiveLimits } from '../../sandbox/index.ts';
import type { PodOutcome } from '../history/index.ts';
import type { KnownValues } from '../model/index.ts';
import type { DeclaredPod } from '../../sandbox/index.ts';
import type { DecreaseReport } from '../foresight/index.ts';

/** The actual values of a pod or a container: its limits, its usage and its weight. Undefined: unknown, or the controller is not enabled. */
export interface ActualValues extends EffectiveLimits {
  readonly memoryUsed: Bytes | undefined;
  readonly weight: CpuWeight | undefined;
  /** What it uses besides, and how long its tasks wait. Absent: not read. */
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
  readonly lastError: { readonly reason: string; readonly message: string } | undefined;
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

/** Reads a pod's actual values. Rejects with a ShimError when they cannot be read; NOT_FOUND when the pod is gone. */
export type DescribePod = (sandboxId: string) => Promise<PodView>;
