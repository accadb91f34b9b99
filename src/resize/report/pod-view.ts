import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { Bytes, CpuMax, CpuShares, CpuWeight, Limit } from '../../core/quantities/index.ts';
import type { PodOutcome } from '../history/index.ts';
import type { KnownValues } from '../model/index.ts';
import type { DecreaseReport } from '../foresight/index.ts';

/** Live values of a pod or a container. Undefined: not known, or no such controller. */
export interface LiveLimits {
  readonly memory: Limit<Bytes>;
  readonly memoryUsed: Bytes | undefined;
  readonly cpu: CpuMax;
  readonly shares: CpuShares | undefined;
  readonly weight: CpuWeight | undefined;
}

/** A pod as the kernel has it now. */
export interface PodView {
  readonly limits: LiveLimits;
  /** Those that run, without the sandbox's own. */
  readonly containers: readonly { readonly id: string; readonly name: string; readonly limits: LiveLimits }[];
  readonly volumes: readonly {
    readonly name: string;
    readonly size: Bytes;
    readonly used: Bytes;
    readonly policy: VolumePolicy;
  }[];
  /** What requests since the start of the shim have come to. */
  readonly outcome: Pick<PodOutcome, 'desired' | 'allocated' | 'actuated' | 'volumeErrors'>;
  /** What went wrong in the pod and has not been mended: UNDO_FAILED, say. */
  readonly lastError: { readonly reason: string; readonly message: string } | undefined;
  /** What kubelet has admitted and not carried out; absent: nothing that is known of. */
  readonly kubelet?: KubeletWants;
}

/** What kubelet wants of a pod, and how it stands with that. */
export interface KubeletWants {
  readonly values: KnownValues<Bytes>;
  /** Where more is in use than a memory limit that it wants. */
  readonly decrease: DecreaseReport | undefined;
}

/** Reads a pod's live values. Rejects with a ShimError when they cannot be read; NOT_FOUND when the pod has gone. */
export type DescribePod = (sandboxId: string) => Promise<PodView>;
