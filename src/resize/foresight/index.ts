/** kubelet's pending resizes, derived from its checkpoints, and reclaim for them. A hint: the kernel and CRI calls decide. */
export { awaitComparable, measuredByRuntime } from './await-comparable.ts';
export type { AwaitComparableParts } from './await-comparable.ts';
export { createDecreaseReclaimer } from './create-decrease-reclaimer.ts';
export type { DecreaseReport } from './decrease.ts';
export { DecreaseReclaimer } from './decrease-reclaimer.ts';
export {
  boundByPending,
  pendingResizeOf,
  pendingResizeForContainer,
  pendingResizeForPod,
  volumeChanges,
  withoutWritten,
} from './pending/index.ts';
export type { PendingPodLimits } from './pending/index.ts';
