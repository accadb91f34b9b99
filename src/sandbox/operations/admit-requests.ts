import { type CgroupPath, type CgroupTree, kubeletPodCgroups } from '../../cgroups/index.ts';
import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { PodSpecs } from '../pods/pod-spec.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { Registry } from '../pods/registry.ts';
import { hasPodCgroup, overheadOf, podCgroup } from '../pods/read-pod.ts';
import { identityOf } from '../pods/pod-identity.ts';
import {
  type AdmittedRequests,
  type AllocatableParts,
  assertNodeHasRoom,
  nodeAllocatable,
} from '../admission/node-room.ts';
import {
  RESOURCES,
  type TotalRequests,
  addRequests,
  admittedRequests,
  requestsAfter,
  requestsNow,
} from '../admission/pod-requests.ts';
import type { DesiredPod } from '../plan/resize-request.ts';

export interface AdmitRequestsParts extends AllocatableParts {
  readonly tree: CgroupTree;
  readonly registry: Registry;
  readonly specs: PodSpecs;
  readonly kubelet: KubeletState;
  readonly admitted: AdmittedRequests;
}

/**
 * Compares the requests that a pod has after a resize with what the node has left for it, and records them, so that the next resize
 * of another pod counts them. Returns a function that drops the record, for a resize that fails, and that returns whether this frees
 * room for other pods. Throws as {@link assertNodeHasRoom}.
 */
export function admitRequests(
  parts: AdmitRequestsParts,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  { dryRun }: { readonly dryRun: boolean },
): () => boolean {
  const before = requestsNow(state, desired);
  const after = requestsAfter(state, desired);
  if (RESOURCES.every((resource) => before[resource] === after[resource])) return () => false;
  // Requests that do not rise always fit: then nothing is read.
  if (RESOURCES.some((resource) => after[resource] > before[resource])) {
    const allocatable = nodeAllocatable(parts, pod);
    assertNodeHasRoom(pod, { before, after }, { allocatable, others: requestsOfOthers(parts, pod) });
  }
  const { uid } = pod.metadata;
  // The record of a pod that was removed meanwhile would count until the shim restarts.
  if (dryRun || parts.registry.knownPod(pod.sandboxId) === undefined) return () => false;
  const undo = parts.admitted.record(uid, after, parts.kubelet.allocatedPods().get(uid));
  return () => undo() && RESOURCES.some((resource) => after[resource] > before[resource]);
}

/**
 * Returns what the other pods have requested: as a ResizePod has set it, otherwise as kubelet has admitted it. A pod that has ended
 * has no cgroup any more, and requests nothing. Nor does one that kubelet has evicted: its entry stays until the object is deleted from
 * the API, when its sandbox and its cgroup are gone.
 */
function requestsOfOthers(parts: AdmitRequestsParts, own: PodDescription): TotalRequests {
  const { metadata } = own;
  parts.kubelet.refresh();
  const entries = parts.kubelet.allocatedPods();
  const uids = new Set([...entries.keys(), ...parts.admitted.uids]);
  uids.delete(metadata.uid);
  const pods = Map.groupBy(parts.registry.pods, (pod) => pod.metadata.uid);
  return addRequests(
    [...uids].flatMap((uid) => {
      const entry = entries.get(uid);
      const sandboxes = pods.get(uid) ?? [];
      if (hasEnded(parts, uid, sandboxes, hasPodCgroup(own) ? podCgroup(own) : undefined)) return [];
      return requestsOfOther(parts, uid, entry, sandboxes) ?? [];
    }),
  );
}

/**
 * Whether a pod has no cgroup any more. kubelet creates the cgroup of a pod before its volumes and its sandbox (pkg/kubelet/kubelet.go,
 * SyncPod). Without a sandbox, `own`, the cgroup of the pod that is resized, tells where kubelet creates cgroups.
 */
function hasEnded(
  { tree }: AdmitRequestsParts,
  uid: string,
  sandboxes: readonly PodDescription[],
  own: CgroupPath | undefined,
): boolean {
  if (sandboxes.length > 0) return !sandboxes.some((pod) => hasPodCgroup(pod) && tree.exists(podCgroup(pod)));
  const cgroups = own === undefined ? undefined : kubeletPodCgroups(own, uid);
  return cgroups?.every((cgroup) => !tree.exists(cgroup)) ?? false;
}

function requestsOfOther(
  { admitted, specs }: AdmitRequestsParts,
  uid: string,
  entry: PodEntry | undefined,
  [pod]: readonly PodDescription[],
): TotalRequests | undefined {
  const spec = pod && specs.of(identityOf(pod))?.containers;
  const overhead = pod && overheadOf(pod);
  return admitted.of(uid, entry) ?? (entry && admittedRequests(entry, spec, overhead));
}
