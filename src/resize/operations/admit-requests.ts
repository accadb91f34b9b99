import type { CgroupTree } from '../../cgroups/index.ts';
import type { KubeletState, PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import {
  type PodSpecs,
  type PodState,
  type Registry,
  hasPodCgroup,
  identityOf,
  overheadOf,
  podCgroup,
} from '../../sandbox/index.ts';
import {
  type AllocatableParts,
  RESOURCES,
  type TotalRequests,
  addRequests,
  admittedRequests,
  assertNodeHasRoom,
  nodeAllocatable,
} from '../admission/index.ts';
import type { AdmittedRequests } from '../history/index.ts';
import type { DesiredPod } from '../model/index.ts';
import { requestsAfter, requestsNow } from '../values/index.ts';

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
  const allocatable = nodeAllocatable(parts, pod);
  assertNodeHasRoom(pod, { before, after }, { allocatable, others: requestsOfOthers(parts, pod) });
  const { uid } = pod.metadata;
  // The record of a pod that was removed meanwhile would count for ever.
  if (dryRun || parts.registry.knownPod(pod.sandboxId) === undefined) return () => false;
  const undo = parts.admitted.record(uid, after, parts.kubelet.allocated(uid));
  return () => undo() && RESOURCES.some((resource) => after[resource] > before[resource]);
}

/**
 * Returns what the other pods have requested: as a ResizePod has set it, otherwise as kubelet has admitted it. A pod that has ended
 * has no cgroup any more, and requests nothing.
 */
function requestsOfOthers(parts: AdmitRequestsParts, { metadata }: PodDescription): TotalRequests {
  parts.kubelet.refresh();
  const entries = parts.kubelet.allocatedPods();
  const uids = new Set([...entries.keys(), ...parts.admitted.uids]);
  uids.delete(metadata.uid);
  const pods = Map.groupBy(parts.registry.pods, (pod) => pod.metadata.uid);
  return addRequests([...uids].flatMap((uid) => requestsOfOther(parts, uid, entries.get(uid), pods.get(uid)) ?? []));
}

function requestsOfOther(
  { admitted, specs, tree }: AdmitRequestsParts,
  uid: string,
  entry: PodEntry | undefined,
  sandboxes: readonly PodDescription[] = [],
): TotalRequests | undefined {
  const hasEnded = sandboxes.length > 0 && !sandboxes.some((pod) => hasPodCgroup(pod) && tree.exists(podCgroup(pod)));
  if (hasEnded) return undefined;
  const [pod] = sandboxes;
  const spec = pod && specs.of(identityOf(pod))?.containers;
  const overhead = pod && overheadOf(pod);
  return admitted.of(uid, entry) ?? (entry && admittedRequests(entry, spec, overhead));
}
