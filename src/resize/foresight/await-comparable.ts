import type { KubeletState } from '../../kubelet/index.ts';
import type { Registry } from '../../sandbox/index.ts';
import type { UsageSource } from './comparison.ts';
import type { DecreaseReclaimer } from './decrease-reclaimer.ts';

export interface AwaitComparableParts {
  readonly registry: Registry;
  readonly kubelet: KubeletState;
  readonly decreaseReclaimer: DecreaseReclaimer;
}

/**
 * Returns a promise that resolves when kubelet may compare the usage of a pod with the limits that it has admitted; undefined if it
 * may at once. The promise never rejects.
 */
export function awaitComparable(
  { registry, kubelet, decreaseReclaimer }: AwaitComparableParts,
  sandboxId: string,
  source: UsageSource,
): Promise<void> | undefined {
  const uid = uidOf(registry, sandboxId);
  if (uid === undefined) return undefined;
  // kubelet compares right after it has written what it admits.
  return decreaseReclaimer.comparable(uid, source, kubelet.refreshed());
}

/** Records that the runtime has reported the usage of a pod to kubelet. */
export function measuredByRuntime({ registry, decreaseReclaimer }: AwaitComparableParts, sandboxId: string): void {
  const uid = uidOf(registry, sandboxId);
  if (uid !== undefined) decreaseReclaimer.measuredByRuntime(uid);
}

const uidOf = (registry: Registry, sandboxId: string): string | undefined =>
  registry.pods.find((known) => known.sandboxId === sandboxId)?.metadata.uid;
