import type { PodAmounts } from '../amounts.ts';
import type { PodValues } from '../kubelet-values.ts';
import type { MatrixPod } from '../matrix-pod.ts';

/** One of the ways in which a pod is resized: who calls what, and in which order. */
export interface Way {
  readonly name: string;
  /** Whether it can take a limit away. */
  readonly removesLimits: boolean;
  /** Whether it tells the kernel what is requested of memory. */
  readonly reserves: boolean;
  /** Resizes a pod that has `from`, and values of its own. Where there is an answer, looks whether it is right. */
  readonly resize: (pod: MatrixPod, from: PodAmounts, to: PodAmounts, before: PodValues) => Promise<void>;
  /** The pod's own values after it, when they were `before`. */
  readonly podAfter: (pod: MatrixPod, before: PodValues, to: PodAmounts) => PodValues;
}
