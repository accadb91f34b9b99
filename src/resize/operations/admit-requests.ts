import { type CgroupTree, MIN_CPU_SHARES } from '../../cgroups/index.ts';
import type { CpuShares } from '../../core/quantities/index.ts';
import { type KubeletState, type MilliCpu, type PodEntry, sharesToMilliCpu } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import {
  type Amounts,
  type DeclaredContainer,
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
  podRequests,
} from '../admission/index.ts';
import type { AdmittedRequests } from '../history/index.ts';
import type { DesiredPod } from '../model/index.ts';

export interface AdmitRequestsParts extends AllocatableParts {
  readonly tree: CgroupTree;
  readonly registry: Registry;
  readonly specs: PodSpecs;
  readonly kubelet: KubeletState;
  readonly admitted: AdmittedRequests;
}

/**
 * Compares the requests that a pod has after a resize with what the node has left for it, and records them, so that the next resize
 * of another pod counts them. Returns a function that drops the record, for a resize that fails. Throws as {@link assertNodeHasRoom}.
 */
export function admitRequests(
  parts: AdmitRequestsParts,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  { dryRun }: { readonly dryRun: boolean },
): () => void {
  const before = requestsOf(state, { ...desired, pod: {}, containers: new Map(), memoryRequests: { containers: {} } });
  const after = requestsOf(state, desired);
  if (RESOURCES.every((resource) => before[resource] === after[resource])) return () => undefined;
  const allocatable = nodeAllocatable(parts, pod);
  assertNodeHasRoom(pod, { before, after }, { allocatable, others: requestsOfOthers(parts, pod) });
  const { uid } = pod.metadata;
  return dryRun ? () => undefined : parts.admitted.record(uid, after, parts.kubelet.allocated(uid));
}

/**
 * Returns a pod's requests with those that are asked for. A CPU request is what the runtime has as shares. A memory request is what
 * an earlier resize has set, or kubelet has admitted, or the spec says.
 */
function requestsOf({ containers, declared, overhead }: PodState, desired: DesiredPod): TotalRequests {
  const shares = new Map(containers.map((running) => [running.id, running.shares]));
  const own = declared?.containers ?? containers.map(({ id }): DeclaredContainer => ({ ...unnamed, id }));
  const level: Amounts = {
    ...declared?.requests,
    ...amounts(
      desired.memoryRequests?.pod ?? desired.earlierMemoryRequests?.pod,
      desired.pod.shares === undefined ? undefined : milliCpuOf(desired.pod.shares),
    ),
  };
  return podRequests({
    containers: own
      .filter(({ isUncounted }) => isUncounted !== true)
      .map(({ name, kind, id, requests }) => {
        const live = desired.containers.get(name)?.shares ?? (id === undefined ? undefined : shares.get(id));
        return {
          kind,
          requests: {
            ...requests,
            ...amounts(memoryRequestOf(desired, name), live === undefined ? undefined : milliCpuOf(live)),
          },
        };
      }),
    level,
    overhead,
  });
}

const unnamed: DeclaredContainer = { name: '', kind: 'unknown', state: 'running' };

function memoryRequestOf({ memoryRequests, earlierMemoryRequests }: DesiredPod, name: string): Amounts['memory'] {
  const [found] = [memoryRequests, earlierMemoryRequests].flatMap((requests) =>
    requests !== undefined && Object.hasOwn(requests.containers, name) ? (requests.containers[name] ?? []) : [],
  );
  return found;
}

const amounts = (memory: Amounts['memory'], milliCpu: MilliCpu | undefined): Amounts => ({
  ...(memory !== undefined && { memory }),
  ...(milliCpu !== undefined && milliCpu > 0 && { milliCpu }),
});

/** A container without a request has the minimum of shares, or none in the runtime. */
const milliCpuOf = (shares: CpuShares): MilliCpu => (shares <= MIN_CPU_SHARES ? 0 : sharesToMilliCpu(shares));

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
