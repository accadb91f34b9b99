import { messageOf } from '../../core/errors/index.ts';
import type { Backend, PodDescription } from '../../runtime/index.ts';
import { type PendingPodLimits, pendingResizeOf, volumeChanges } from '../foresight/index.ts';
import {
  type DeclarePodParts,
  type Registry,
  hasPodCgroup,
  identityOf,
  lockKeyOf,
  limitsByName,
  readDeclaredPod,
  readVolumes,
} from '../../sandbox/index.ts';
import { journalVolumes, observeVolumes } from '../volumes/index.ts';
import { type PerformParts, type RecoverParts, perform, tryRecoverPod } from '../execute/index.ts';
import type { ResizeHistory } from '../history/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

/** What sizes a pod's volumes. */
export interface VolumeSizeParts extends RecoverParts, PerformParts, DeclarePodParts {
  readonly registry: Registry;
  /** Client for the shim's own calls. */
  readonly backend: Backend;
  /** What kubelet has written about its pods: a hint at what it asks for next. */
  readonly kubelet: KubeletState;
  /** The pending resize of kubelet for each pod, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
  readonly history: ResizeHistory;
}

export interface GrowVolumesLaterParts extends VolumeSizeParts {
  /** Timers of pods whose volumes grow when no more updates come, by sandbox id. */
  readonly growthTimers: Map<string, NodeJS.Timeout>;
}

/**
 * Delay from the last update of a pod to the growth of its volumes, in milliseconds, when the pod limit stays looser than its
 * containers need.
 */
export const GROW_DELAY_MS = 2000;

/**
 * KEP-6030: volumes grow after the memory limits. Schedules the growth of a pod's volumes for {@link GROW_DELAY_MS} after the last
 * update. Called at each update: it restarts the timer, or cancels it when the update has set the final sizes.
 */
export function scheduleVolumeGrowth(parts: GrowVolumesLaterParts, pod: PodDescription, isFinal: boolean): void {
  clearTimeout(parts.growthTimers.get(pod.sandboxId));
  parts.growthTimers.delete(pod.sandboxId);
  if (isFinal) return;
  const timer = setTimeout(() => {
    parts.growthTimers.delete(pod.sandboxId);
    // An update that holds the pod's lock meanwhile starts the time again.
    void applyVolumeSizes(parts, pod, () => !parts.growthTimers.has(pod.sandboxId));
  }, GROW_DELAY_MS);
  timer.unref();
  parts.growthTimers.set(pod.sandboxId, timer);
}

/**
 * Sets the volumes of a pod to the sizes that its present limits give. Never rejects: no caller waits, and the pod's next update
 * reads the volumes again.
 * @param isDue whether they are still to be set, asked under the pod's lock
 */
export async function applyVolumeSizes(
  parts: VolumeSizeParts,
  pod: PodDescription,
  isDue: () => boolean = () => true,
): Promise<void> {
  // A pod without a cgroup of its own has no limit to derive a size from.
  if (!hasPodCgroup(pod)) return;
  try {
    await resizeVolumes(parts, pod, isDue);
  } catch (error) {
    parts.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume sizes not applied');
  }
}

/**
 * Sets the volumes whose size is a share of a container that was just created, which may have other limits than the last one of its name.
 * After a restart, volumes that may not grow yet do so {@link GROW_DELAY_MS} later. Does not wait for a resize of the pod. Never rejects.
 * @param container its name
 */
export async function applyContainerShares(
  parts: GrowVolumesLaterParts,
  pod: PodDescription,
  container: string,
): Promise<void> {
  if (!hasShareOf(parts, pod, container)) return;
  const isBusy = parts.lock.isHeld(lockKeyOf(pod));
  const sized = applyVolumeSizes(parts, pod);
  if (!isBusy) await sized;
  // kubelet restarts a container within a resize (resizePolicy), and calls nothing after it.
  const ofName = parts.registry.containersOf(pod.sandboxId).filter(({ name }) => name === container);
  if (ofName.length > 1) scheduleVolumeGrowth(parts, pod, false);
}

/** Whether the size of one of the pod's volumes is a share of this container's limit. False if the volumes cannot be read. */
function hasShareOf({ volumes, policies, log }: VolumeSizeParts, pod: PodDescription, container: string): boolean {
  try {
    return volumes.ofPod(pod.metadata.uid).some(({ name }) => {
      const policy = policies.policy(pod.sandboxId, name);
      return policy.kind === 'container-share' && policy.container === container;
    });
  } catch (error) {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume sizes not applied');
    return false;
  }
}

function resizeVolumes(parts: VolumeSizeParts, pod: PodDescription, isDue: () => boolean): Promise<void> {
  return parts.lock.run(lockKeyOf(pod), async () => {
    if (!isDue()) return;
    await tryRecoverPod(parts, pod);
    const { policies } = parts;
    const volumes = readVolumes(parts.volumes, pod);
    const state = await readDeclaredPod(parts, pod, volumes);
    observeVolumes(parts, pod, volumes, state.memory);
    const pending = pendingResizeOf(parts, pod, state);
    // Volumes that have shrunk for a resize that kubelet has admitted but not actuated stay shrunk.
    const sizes =
      pending === undefined
        ? policies.targets(pod.sandboxId, state.volumes, state.memory, limitsByName(parts, pod, state))
        : volumeChanges(parts, pod, { state, after: state, pending }).volumes;
    // Not awaited: the creation of the pod must not wait for the disk.
    if (sizes.size === 0) return void journalVolumes(parts, pod);
    const grow = async (): Promise<void> => {
      await perform(parts, pod, state, { call: 'none', volumes: sizes });
    };
    const report = parts.history.request(identityOf(pod), { kind: 'shim' });
    await parts.outcomes.track(pod.sandboxId, grow, report);
  });
}
