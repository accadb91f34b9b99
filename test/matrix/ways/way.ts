import type { PodAmounts } from '../amounts.ts';
import type { PodValues } from '../kubelet-values.ts';
import type { MatrixPod, Reserved } from '../matrix-pod.ts';

/** A way to resize a pod: the calls and their order. */
export interface Way {
  readonly name: string;
  /** Whether the way can remove a limit. */
  readonly removesLimits: boolean;
  /** Returns the memory requests of the containers, in MiB, that the kernel has after a resize to these amounts. */
  readonly reservedAfter: (pod: MatrixPod, to: PodAmounts) => Reserved;
  /** Resizes a pod from `from` to `to`, and checks the answer, if any. `before` are the values of its cgroup. */
  readonly resize: (pod: MatrixPod, from: PodAmounts, to: PodAmounts, before: PodValues) => Promise<void>;
  /** Returns the values of the pod's cgroup after a resize from `before`. */
  readonly podAfter: (pod: MatrixPod, before: PodValues, to: PodAmounts) => PodValues;
  /** The changes that the way does not allow, if any. A pod that is resized so stays as it is. */
  readonly refusal?: {
    readonly applies: (pod: MatrixPod, to: PodAmounts) => boolean;
    /** Resizes a pod, and expects that this is rejected. */
    readonly resize: (pod: MatrixPod, to: PodAmounts) => Promise<void>;
  };
}
