import { messageOf } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type PodForeseen, foreseenOf, volumeChanges } from '../foresight/index.ts';
import { hasPodCgroup, limitsByName, readPod, readVolumes } from '../../sandbox/index.ts';
import { keepVolumes, meetVolumes } from '../volumes/index.ts';
import { type PerformParts, type RecoverParts, perform, tryRecoverPod } from '../execute/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

export interface GrowVolumesLaterParts extends RecoverParts, PerformParts {
  /** Pods whose volumes grow when no more updates come, by sandbox id. */
  readonly settling: Map<string, NodeJS.Timeout>;
  /** What kubelet has written of its pods: a hint at what it is about to ask for. */
  readonly kubelet: KubeletState;
  /** What that came to for pods in the middle of a resize, by sandbox id. */
  readonly foreseen: Map<string, PodForeseen>;
}

/** How long after the last update of a pod its volumes grow, when its limit stays looser than its containers need. */
export const GROW_DELAY_MS = 2000;

/**
 * Lets a pod's volumes grow once no update has come for {@link GROW_DELAY_MS}. Called at each update: one after which more are to
 * come begins the time anew, one that has settled the volumes' sizes ends it.
 */
export function scheduleVolumeGrowth(context: GrowVolumesLaterParts, pod: PodDescription, isSettled: boolean): void {
  clearTimeout(context.settling.get(pod.sandboxId));
  context.settling.delete(pod.sandboxId);
  if (isSettled) return;
  const timer = setTimeout(() => {
    context.settling.delete(pod.sandboxId);
    void applyVolumeSizes(context, pod);
  }, GROW_DELAY_MS);
  timer.unref();
  context.settling.set(pod.sandboxId, timer);
}

/**
 * Gives the volumes of a pod the sizes that they shall have under its present limits. Never rejects: nobody waits for it, and
 * the pod's next update finds the volumes as they are.
 */
export async function applyVolumeSizes(
  context: Pick<
    GrowVolumesLaterParts,
    | 'registry'
    | 'backend'
    | 'journal'
    | 'tree'
    | 'volumes'
    | 'policies'
    | 'outcomes'
    | 'lock'
    | 'calls'
    | 'cgroups'
    | 'kubelet'
    | 'foreseen'
    | 'reclaimTimeout'
    | 'log'
    | 'counters'
    | 'recent'
    | 'procRoot'
  >,
  pod: PodDescription,
): Promise<void> {
  // Without a cgroup of its own a pod has no limit that a volume's size could go by.
  if (!hasPodCgroup(pod)) return;
  try {
    await resizeVolumes(context, pod);
  } catch (error) {
    context.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volume sizes not applied');
  }
}

function resizeVolumes(
  context: RecoverParts &
    PerformParts & { readonly kubelet: KubeletState; readonly foreseen: Map<string, PodForeseen> },
  pod: PodDescription,
): Promise<void> {
  return context.lock.run(pod.sandboxId, async () => {
    await tryRecoverPod(context, pod);
    const { policies } = context;
    const volumes = readVolumes(context.volumes, pod);
    const state = await readPod(context.tree, pod, volumes);
    meetVolumes(context, pod, volumes, state.memory);
    const pending = foreseenOf(context, pod, state);
    // What kubelet has admitted and not carried out yet is still to come: what has shrunk for it stays so.
    const sizes =
      pending === undefined
        ? policies.targets(pod.sandboxId, state.volumes, state.memory, limitsByName(context, pod, state))
        : volumeChanges(context, pod, { state, after: state, foreseen: pending }).volumes;
    // Not waited for: the pod that is being made would wait for a disk, and needs nothing from it.
    if (sizes.size === 0) return void keepVolumes(context, pod);
    await context.outcomes.track(pod.sandboxId, () => perform(context, pod, state, { call: 'none', volumes: sizes }));
  });
}
