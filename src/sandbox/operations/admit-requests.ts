import { type CgroupPath, type CgroupTree, kubeletPodCgroups } from '../../cgroups/index.ts';
import { bytes } from '../../core/index.ts';
import type { PodEntry } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { assertNodeHasRoom, nodeAllocatable } from '../admission/node-room.ts';
import { requestsAfter, requestsNow } from '../admission/pod-level.ts';
import {
  addRequests,
  admittedRequests,
  podRequests,
  RESOURCES,
  requestOfShares,
  type TotalRequests,
} from '../admission/pod-requests.ts';
import type { Node } from '../node.ts';
import type { AdmittedRecord, DesiredPod } from '../plan/resize-request.ts';
import { identityOf, lockKeyOf } from '../pods/pod-identity.ts';
import type { PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, overheadOf, podCgroup } from '../pods/read-pod.ts';

/** The change of a pod's requests by an admitted resize. */
export interface AdmittedChange {
  /** For the journal; undefined if the requests do not change. */
  readonly record: AdmittedRecord | undefined;
  /** Drops the new requests after a failed resize. Returns whether other pods gain room. */
  readonly drop: () => boolean;
}

const NO_CHANGE: AdmittedChange = { record: undefined, drop: () => false };

/**
 * KEP-1287, allocated resources: compares the requests of a pod after a resize with the free resources of the node, and
 * records them, so that the next resize of another pod counts them. Throws like {@link assertNodeHasRoom}.
 */
export function admitRequests(
  node: Node,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  { dryRun }: { readonly dryRun: boolean },
): AdmittedChange {
  const before = requestsNow(state, desired);
  const after = requestsAfter(state, desired);
  if (RESOURCES.every((resource) => before[resource] === after[resource])) return NO_CHANGE;
  // Requests that do not rise always fit, so nothing has to be read.
  if (RESOURCES.some((resource) => after[resource] > before[resource])) {
    const allocatable = nodeAllocatable(node, pod);
    assertNodeHasRoom(pod, { before, after }, { allocatable, others: requestsOfOthers(node, pod) });
  }
  const key = lockKeyOf(pod);
  // A record of a pod that was removed meanwhile would count until the shim restarts.
  if (dryRun || node.registry.knownPod(pod.sandboxId) === undefined) return NO_CHANGE;
  const undo = node.admitted.record(key, after, node.kubelet.allocatedPods().get(key));
  return {
    record: node.admitted.recordOf(key),
    drop: () => undo() && RESOURCES.some((resource) => after[resource] > before[resource]),
  };
}

/**
 * Returns the requests of the other pods: as set by a ResizePod, otherwise as admitted by kubelet, otherwise as in the
 * spec, otherwise as the shares of the sandbox show. A pod that has ended has no cgroup and requests nothing. The same
 * applies to a pod that kubelet has evicted: its entry stays until the object is deleted from the API, but its sandbox
 * and its cgroup no longer exist.
 */
function requestsOfOthers(node: Node, own: PodDescription): TotalRequests {
  node.kubelet.refresh();
  const entries = node.kubelet.allocatedPods();
  const pods = Map.groupBy(node.registry.pods, lockKeyOf);
  const uids = new Set([...entries.keys(), ...node.admitted.uids, ...pods.keys()]);
  uids.delete(lockKeyOf(own));
  return addRequests(
    [...uids].flatMap((uid) => {
      const entry = entries.get(uid);
      const sandboxes = pods.get(uid) ?? [];
      if (hasEnded(node.tree, uid, sandboxes, hasPodCgroup(own) ? podCgroup(own) : undefined)) return [];
      return requestsOfOther(node, uid, entry, sandboxes) ?? [];
    }),
  );
}

/**
 * Whether a pod has no cgroup any more. kubelet creates a pod's cgroup before its volumes and its sandbox
 * (pkg/kubelet/kubelet.go, SyncPod). Without a sandbox, the cgroup of the resized pod `own` shows where kubelet creates
 * cgroups.
 */
function hasEnded(
  tree: CgroupTree,
  uid: string,
  sandboxes: readonly PodDescription[],
  own: CgroupPath | undefined,
): boolean {
  if (sandboxes.length > 0) return !sandboxes.some((pod) => hasPodCgroup(pod) && tree.exists(podCgroup(pod)));
  const cgroups = own === undefined ? undefined : kubeletPodCgroups(own, uid);
  return cgroups?.every((cgroup) => !tree.exists(cgroup)) ?? false;
}

function requestsOfOther(
  { admitted, specs }: Node,
  uid: string,
  entry: PodEntry | undefined,
  [pod]: readonly PodDescription[],
): TotalRequests | undefined {
  const spec = pod && specs.of(identityOf(pod));
  const overhead = pod && overheadOf(pod);
  const own = admitted.of(uid, entry);
  if (own !== undefined) return own;
  if (entry !== undefined) return admittedRequests(entry, spec?.containers, overhead);
  if (spec !== undefined) return podRequests({ containers: spec.containers, level: spec.requests, overhead });
  // kubelet includes the overhead in the shares of a sandbox. Nothing has the memory that the pod requests.
  return pod && { memory: bytes(0), milliCpu: requestOfShares(pod.cpuShares, undefined) ?? 0 };
}
