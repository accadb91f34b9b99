import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import {
  type Foreseen,
  type PodForeseen,
  agrees,
  agreesWithPod,
  foresee,
  foreseenState,
  isMemoryDone,
  noLowerThan,
} from './target.ts';
import { type ContainerLimits, type Limits, type PodState, type Registry, limitsByName } from '../../sandbox/index.ts';
import { onlyShrinking } from '../model/index.ts';
import type { VolumePolicies } from '../volumes/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';
import { isMemoryTight } from '../plan/index.ts';

/** What kubelet has admitted for a pod and not carried out; undefined: nothing that is known of. */
export function foreseenOf(
  context: { readonly registry: Registry; readonly kubelet: KubeletState; readonly foreseen: Map<string, PodForeseen> },
  pod: PodDescription,
  state: PodState,
): Foreseen | undefined {
  const { sandboxId, metadata } = pod;
  const { registry } = context;
  context.kubelet.refresh();
  const allocated = context.kubelet.allocated(metadata.uid);
  if (allocated === undefined) return undefined;
  const actuated = context.kubelet.actuated(metadata.uid);
  // Of all its sandboxes: the containers of one that has ended may still run.
  const names = new Map(
    registry.pods
      .filter((other) => other.metadata.uid === metadata.uid)
      .flatMap((other) => registry.containersOf(other.sandboxId))
      .map(({ containerId, name }) => [containerId, name]),
  );
  const foreseen = foresee(state, { allocated, actuated, names, before: context.foreseen.get(sandboxId) });
  if (foreseen === undefined) context.foreseen.delete(sandboxId);
  else context.foreseen.set(sandboxId, { allocated, limits: foreseen.pod });
  return foreseen;
}

/** The same for an update of one container, if that is a part of it. */
export function foreseenWith(
  context: { readonly registry: Registry; readonly kubelet: KubeletState; readonly foreseen: Map<string, PodForeseen> },
  pod: PodDescription,
  state: PodState,
  wish: ContainerLimits,
): Foreseen | undefined {
  const foreseen = foreseenOf(context, pod, state);
  const now = state.containers.find(({ id }) => id === wish.id)?.memory;
  return foreseen !== undefined && now !== undefined && agrees(foreseen, wish, now) ? foreseen : undefined;
}

/** The same for an update of the pod itself. */
export function foreseenWithPod(
  context: { readonly registry: Registry; readonly kubelet: KubeletState; readonly foreseen: Map<string, PodForeseen> },
  pod: PodDescription,
  state: PodState,
  memory: Limit<Bytes> | undefined,
): Foreseen | undefined {
  const foreseen = foreseenOf(context, pod, state);
  return foreseen !== undefined && agreesWithPod(foreseen, state, memory) ? foreseen : undefined;
}

/** Limits of the pod that go with its containers': never lowered further than where kubelet is about to set them. */
export const boundedBy = (foreseen: Foreseen | undefined, state: PodState, limits: Limits): Limits =>
  foreseen === undefined ? limits : noLowerThan(limits, state, foreseen);

/** What becomes of a pod's volumes with one call. */
export interface VolumeChanges {
  readonly volumes: ReadonlyMap<string, Bytes>;
  /** Whether no more calls are to come that they go by. */
  readonly isSettled: boolean;
}

/**
 * The sizes that a pod's volumes get with a call after which the pod is like `after`. Where it is known how kubelet's resize
 * ends, those that shrink do so at its first call, once, and those that grow do at the last one. Else they go by `after`, and those that
 * grow wait until the pod's limit is tight: while it is looser than its containers need, more calls are on their way.
 */
export function volumeChanges(
  context: { readonly registry: Registry; readonly policies: VolumePolicies },
  pod: PodDescription,
  {
    state,
    after,
    foreseen,
  }: { readonly state: PodState; readonly after: PodState; readonly foreseen: Foreseen | undefined },
  overrides?: ReadonlyMap<string, VolumePolicy>,
): VolumeChanges {
  const end = foreseen === undefined ? after : foreseenState(after, foreseen);
  const limits = limitsByName(context, pod, end);
  const sizes = context.policies.targets(pod.sandboxId, state.volumes, end.memory, limits, overrides);
  const isDone = foreseen === undefined ? undefined : isMemoryDone(after, foreseen);
  const isSettled = isDone ?? isMemoryTight(after);
  return { volumes: isSettled ? sizes : onlyShrinking(state, sizes), isSettled };
}
