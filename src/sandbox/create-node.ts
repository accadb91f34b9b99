import {
  type Bytes,
  type Clock,
  type Counters,
  KeyedLock,
  type Log,
  noCounters,
  noLog,
  systemClock,
} from '../core/index.ts';
import { noKubeletState, noResourceManagers } from '../kubelet/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import { AdmittedRequests, type AllocatableSources, memorySizes } from './admission/node-room.ts';
import { createDecreaseReclaimer } from './foresight/create-decrease-reclaimer.ts';
import type { DecreaseReclaimer } from './foresight/decrease-reclaimer.ts';
import { PendingResizes } from './foresight/pending-kubelet-resize.ts';
import { ResizeHistory } from './history/history.ts';
import { NewestValues } from './history/newest-values.ts';
import { PodOutcomes } from './history/outcomes.ts';
import { TransactionEvents } from './history/transaction-events.ts';
import type { Node } from './node.ts';
import { forgetPodRecord, learnPodVolumes, restoreVolumes } from './operations/pod-volumes.ts';
import { ContainerCgroups } from './pods/container-cgroups.ts';
import { failOpenReport } from './pods/fail-open.ts';
import { identityOf, isStaticPod, lockKeyOf } from './pods/pod-identity.ts';
import { noNodeAllocatable, noPodSpecs, type PodSpecs } from './pods/pod-spec.ts';
import { hasPodCgroup } from './pods/read-pod.ts';
import type { Registry } from './pods/registry.ts';
import { countTransactions, logTransactions, recordTransactions } from './transaction/listeners.ts';
import { GrowthTimers } from './volumes/growth-timers.ts';
import { type FollowSetting, VolumePolicies } from './volumes/policies.ts';

type Given = 'registry' | 'backend' | 'journal' | 'tree' | 'volumes' | 'reclaimTimeout';
type Optional = 'log' | 'counters' | 'kubelet' | 'managers' | 'specs' | 'allocatable' | 'recent' | 'procRoot';

/** The parts of a node that its creator supplies. Optional parts have a default without effect. */
export interface NodeOptions extends Pick<Node, Given>, Partial<Pick<Node, Optional>> {
  /** Whether volumes without an annotation may follow the pod limit. */
  readonly volumesFollow?: FollowSetting;
}

/** Creates the node, and updates its data about pods when the registry and the journal learn of them. */
export function createNode({
  log = noLog,
  counters = noCounters,
  kubelet = noKubeletState,
  managers = noResourceManagers,
  specs = noPodSpecs,
  allocatable = noNodeAllocatable,
  volumesFollow = 'auto',
  ...given
}: NodeOptions): Node {
  const { registry, tree, procRoot } = given;
  const node: Node = {
    ...given,
    cgroups: new ContainerCgroups(registry, tree, procRoot),
    policies: new VolumePolicies({
      follow: volumesFollow,
      declared: declaredVolumes(registry, specs),
      isKubelets(sandboxId, volume) {
        const pod = registry.knownPod(sandboxId);
        // kubelet lists the volumes of static pods too, but their spec cannot change.
        return pod !== undefined && !isStaticPod(pod) && kubelet.resizesVolume(pod.metadata.uid, volume);
      },
      nodeMemory: (sandboxId) => nodeMemory({ ...given, allocatable }, registry.knownPod(sandboxId)),
    }),
    growth: new GrowthTimers(),
    outcomes: new PodOutcomes(counters),
    history: historyOf(registry, log, counters),
    newest: new NewestValues(),
    transactions: new TransactionEvents(log),
    lock: new KeyedLock(),
    calls: new KeyedLock(),
    kubelet,
    pending: new PendingResizes(registry, kubelet),
    managers,
    specs,
    allocatable,
    admitted: new AdmittedRequests(),
    log,
    counters,
    failOpen: failOpenReport(counters, log),
  };
  listenToTransactions(node);
  watchRegistry(node);
  restoreOnceRead(node);
  return node;
}

const historyOf = (registry: Registry, log: Log, counters: Counters): ResizeHistory =>
  new ResizeHistory({
    log,
    counters,
    isKnown: (sandboxId) => registry.knownPod(sandboxId) !== undefined,
    nameOf: (containerId) => registry.container(containerId)?.name ?? containerId,
  });

/** Creates a node's decrease reclaimer. Reports added and removed pods to it, and ends a hold before a pod action. */
export function connectDecreaseReclaimer(node: Node, clock: Clock = systemClock): DecreaseReclaimer {
  const { registry, lock } = node;
  const reclaimer = createDecreaseReclaimer(node, clock);
  // A section under the lock must not read a memory.high that a hold has lowered.
  lock.beforeActions((key) => {
    const pod = registry.pods.find((known) => lockKeyOf(known) === key);
    return pod && reclaimer.release(pod.metadata.uid);
  });
  registry.watch({
    podAdded: ({ metadata }) => reclaimer.podAdded(metadata.uid),
    podRemoved({ metadata: { uid } }) {
      if (!registry.pods.some(({ metadata }) => metadata.uid === uid)) reclaimer.podRemoved(uid);
    },
  });
  return reclaimer;
}

function listenToTransactions({ transactions, outcomes, counters, log, recent, registry, tree }: Node): void {
  transactions.listen(outcomes);
  transactions.listen(countTransactions(counters));
  transactions.listen(logTransactions(log));
  if (recent !== undefined) transactions.listen(recordTransactions(recent, registry, tree));
}

/** Restores volume records and admitted requests after the journal is read, and of those with records read later. */
function restoreOnceRead(node: Node): void {
  const { registry, journal, admitted } = node;
  const restoreAdmitted = (isRead: (podUid: string) => boolean): void => {
    for (const [podUid, record] of journal.admitted()) if (isRead(podUid)) admitted.restore(podUid, record);
  };
  // Includes pods that are added while the journal is read.
  void journal.restored().then(() => {
    registry.pods.forEach((pod) => restoreVolumes(node, pod));
    restoreAdmitted(() => true);
  });
  journal.onLate((late) => {
    const uids = new Set(late.map(({ podUid }) => podUid));
    for (const pod of registry.pods)
      if (uids.has(pod.metadata.uid) || uids.has(pod.sandboxId)) restoreVolumes(node, pod);
    restoreAdmitted((podUid) => uids.has(podUid));
  });
}

/**
 * Returns the node's memory for the volumes of a pod: kubelet takes the allocatable of the Node object (kubelet
 * pkg/kubelet/volume_host.go, GetNodeAllocatable). Undefined if the pod is unknown or has no own cgroup.
 */
const nodeMemory = (sources: AllocatableSources, pod: PodDescription | undefined): Bytes | undefined =>
  pod === undefined || !hasPodCgroup(pod)
    ? undefined
    : memorySizes(sources, pod).toSorted((one, other) => one - other)[0];

/** Returns the memory-backed volumes in the spec of a pod, by its sandbox id. */
const declaredVolumes = (registry: Registry, specs: PodSpecs) => (sandboxId: string) => {
  const pod = registry.pods.find((known) => known.sandboxId === sandboxId);
  return pod && specs.of(identityOf(pod))?.volumes;
};

/** Learns pods when they are added, and removes stored data of pods and containers when they are removed. */
function watchRegistry(node: Node): void {
  const { registry } = node;
  registry.watch({
    podAdded(pod) {
      learnPodVolumes(node, pod);
      node.journal.sandboxAdded(pod);
    },
    podRemoved(pod) {
      const { sandboxId } = pod;
      node.growth.stop(sandboxId);
      node.policies.forget(sandboxId);
      node.outcomes.forget(sandboxId);
      node.history.forget(sandboxId);
      node.newest.forget(sandboxId);
      node.pending.forget(sandboxId);
      const key = lockKeyOf(pod);
      if (!registry.pods.some((other) => lockKeyOf(other) === key)) node.admitted.forget(key);
      forgetPodRecord(node, pod);
    },
    containerRemoved(containerId) {
      node.cgroups.forget(containerId);
      node.outcomes.forgetContainer(containerId);
    },
  });
}
