import type { Bytes, Limit } from '../../core/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { PodVolumes } from '../../tmpfs/index.ts';
import { isMemoryTight } from '../plan/pod-limits.ts';
import type { ContainerLimits, Limits, PodState } from '../pods/pod-state.ts';
import type { Registry } from '../pods/registry.ts';
import { limitsByName } from '../pods/volumes.ts';
import { onlyShrinking, type VolumePolicies, withoutOverdue } from '../volumes/policies.ts';
import {
  boundDecrease,
  boundIncrease,
  derivePendingResize,
  isMemoryComplete,
  matchesContainerUpdate,
  matchesPodUpdate,
  type PendingPodLimits,
  type PendingResize,
  stateAfterPending,
  writtenLimits,
} from './pending-resize.ts';

/** The resizes of pods that kubelet has admitted but not actuated, according to its state files. */
export class PendingResizes {
  /** The pending limits of pods in the middle of a resize, by sandbox id. */
  readonly #limits = new Map<string, PendingPodLimits>();

  constructor(
    private readonly registry: Registry,
    private readonly kubelet: KubeletState,
  ) {}

  /** Returns the pending resize of a pod; undefined if none is known. */
  of({ sandboxId, metadata }: PodDescription, state: PodState): PendingResize | undefined {
    this.kubelet.refresh();
    const allocated = this.kubelet.allocated(metadata.uid);
    if (allocated === undefined) return undefined;
    const actuated = this.kubelet.actuated(metadata.uid);
    const names = this.#containerNames(metadata.uid);
    const before = this.#limits.get(sandboxId);
    const pending = derivePendingResize(state, { allocated, actuated, names, before });
    if (pending === undefined) this.#limits.delete(sandboxId);
    else this.#limits.set(sandboxId, { allocated, limits: pending.pod });
    return pending;
  }

  /** Returns the pod's pending resize that this container update is part of. Undefined if there is none. */
  ofContainerUpdate(pod: PodDescription, state: PodState, desired: ContainerLimits): PendingResize | undefined {
    const pending = this.of(pod, state);
    const now = state.containers.find(({ id }) => id === desired.id)?.memory;
    return pending !== undefined && now !== undefined && matchesContainerUpdate(pending, desired, now)
      ? pending
      : undefined;
  }

  /** Returns the pod's pending resize that this update of the pod's own limits is part of. Undefined if none. */
  ofPodUpdate(pod: PodDescription, state: PodState, memory: Limit<Bytes> | undefined): PendingResize | undefined {
    const pending = this.of(pod, state);
    return pending !== undefined && matchesPodUpdate(pending, state, memory) ? pending : undefined;
  }

  /**
   * Returns the raised pod limits for a container that starts, without the limits that kubelet has already written: it
   * writes them before it restarts a container to resize it (`resizePolicy: RestartContainer`). Keeps a limit that
   * kubelet may also have written for the previous resize: a container that does not fit its pod limit would be worse.
   */
  withoutWritten({ metadata }: PodDescription, state: PodState, raised: Limits): Limits {
    const allocated = this.kubelet.allocated(metadata.uid);
    const actuated = this.kubelet.actuated(metadata.uid);
    if (allocated === undefined || actuated === undefined) return raised;
    const entries = { state, names: this.#containerNames(metadata.uid) };
    const [wanted, done] = [writtenLimits(entries, allocated), writtenLimits(entries, actuated)];
    const { memory, cpu } = raised;
    return {
      ...(memory !== undefined && (!wanted.memory || done.memory) && { memory }),
      ...(cpu !== undefined && (!wanted.cpu || done.cpu) && { cpu }),
    };
  }

  /** Removes a pod that no longer exists. */
  forget(sandboxId: string): void {
    this.#limits.delete(sandboxId);
  }

  /** Returns names by id, from all sandboxes of the pod: containers of an ended sandbox may still run. */
  #containerNames(uid: string): ReadonlyMap<string, string> {
    const sandboxes = this.registry.pods.filter((other) => other.metadata.uid === uid);
    const containers = sandboxes.flatMap((other) => this.registry.containersOf(other.sandboxId));
    return new Map(containers.map(({ containerId, name }) => [containerId, name]));
  }
}

interface BoundOptions {
  /** The limits of the container update for which the pod limits are derived. */
  readonly asked: ContainerLimits;
  /** Whether unanswered earlier updates may need a higher limit than kubelet knows of. */
  readonly needsRoom: boolean;
}

/**
 * Bounds pod limits that are derived from the containers' limits: not below the pending pod limits and, for limits that
 * kubelet has admitted, not above the pending limits or above the limits that kubelet has written.
 */
export function boundByPending(
  pending: PendingResize | undefined,
  state: PodState,
  limits: Limits,
  { asked, needsRoom }: BoundOptions,
): Limits {
  if (pending === undefined) return limits;
  const bounded = boundDecrease(limits, state, pending);
  return needsRoom ? bounded : boundIncrease(bounded, state, pending, asked);
}

/** The volume sizes to set with one call. */
export interface VolumeChanges {
  readonly volumes: ReadonlyMap<string, Bytes>;
  /** Whether no more calls that affect the volumes are expected. */
  readonly isFinal: boolean;
}

/**
 * Returns the volume sizes to set with a call that brings the pod from `state` to `after`. kubelet makes one call per
 * container and none for volumes. With a known pending resize, volumes shrink once, at its first call, and grow at its
 * last call. Otherwise the sizes follow from `after`, and volumes grow only once the pod's limit is tight: while it is
 * looser than its containers need, more calls are expected. The order is that of KEP-6030: shrink before memory is
 * lowered, grow after memory is raised.
 */
export function volumeChanges(
  context: { readonly registry: Registry; readonly policies: VolumePolicies; readonly volumes: PodVolumes },
  pod: PodDescription,
  {
    state,
    after,
    pending,
  }: { readonly state: PodState; readonly after: PodState; readonly pending: PendingResize | undefined },
): VolumeChanges {
  const end = pending === undefined ? after : stateAfterPending(after, pending);
  const limits = limitsByName(context, pod, end);
  const { sandboxId } = pod;
  const all = context.policies.targets(sandboxId, state.volumes, end.memory, limits);
  const present = context.policies.targets(sandboxId, state.volumes, state.memory, limitsByName(context, pod, state));
  const sizes = withoutOverdue(context.volumes, pod, state, all, { present, podLimit: end.memory });
  const isDone = pending === undefined ? undefined : isMemoryComplete(after, pending);
  const isFinal = isDone ?? isMemoryTight(after);
  const isComplete = [...all].every(([name, size]) => sizes.get(name) === size);
  return { volumes: isFinal ? sizes : onlyShrinking(state, sizes), isFinal: isFinal && isComplete };
}
