/** The resizes that kubelet has admitted and not applied yet, derived from its checkpoints. */
export {
  boundByPending,
  pendingResizeForContainer,
  pendingResizeForPod,
  pendingResizeOf,
  volumeChanges,
  withoutWritten,
} from './pending-kubelet-resize.ts';
export { pendingSwapOf } from './pending-swap.ts';
export { hasPendingMemory } from './pending-resize.ts';
export type { PendingPodLimits } from './pending-resize.ts';
