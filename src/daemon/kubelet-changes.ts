import type { PodEntry } from '../kubelet/index.ts';
import { type ResizeContext, areRequestsFreed } from '../resize/index.ts';
import type { PodResizes } from './pod-resizes.ts';

/** Returns what to do when kubelet's checkpoints have changed. `parts` is called then. */
export function kubeletChanges(
  parts: () => {
    readonly context: Pick<ResizeContext, 'decreaseReclaimer' | 'kubelet'>;
    readonly podResizes: PodResizes;
  },
): () => void {
  let admitted: ReadonlyMap<string, PodEntry> = new Map();
  return () => {
    const { context, podResizes } = parts();
    context.decreaseReclaimer.check();
    const now = context.kubelet.allocatedPods();
    if (areRequestsFreed(admitted, now)) podResizes.resizes.roomFreed();
    admitted = now;
  };
}
