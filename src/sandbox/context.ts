import type { CgroupPath } from '../cgroups/index.ts';
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
import type { PodDescription } from '../runtime/index.ts';
import { type FailOpen, failOpenReport } from './pods/fail-open.ts';
import { type NodeAllocatable, type PodSpecs, noNodeAllocatable, noPodSpecs } from './pods/pod-spec.ts';
import type { Registry } from './pods/registry.ts';
import { hasPodCgroup } from './pods/read-pod.ts';
import { identityOf, lockKeyOf } from './pods/pod-identity.ts';
import { AdmittedRequests, type AllocatableParts, memorySizes } from './admission/node-room.ts';
import { createDecreaseReclaimer } from './foresight/create-decrease-reclaimer.ts';
import { NewestValues } from './history/newest-values.ts';
import { PodOutcomes } from './history/outcomes.ts';
import type { RecentResizes } from './history/recent-resizes.ts';
import { ResizeHistory } from './history/history.ts';
import type { ReadPodViewParts } from './report/pod-view.ts';
import { type FollowSetting, VolumePolicies } from './volumes/policies.ts';
import { type PodLifecycleParts, forgetPodRecord, learnPodVolumes, restoreVolumes } from './operations/pod-volumes.ts';
import { type KubeletState, type ResourceManagers, noKubeletState, noResourceManagers } from '../kubelet/index.ts';

/** The parts that every resize on this node uses. A report of a pod uses some of them. */
export interface ResizeContext extends ReadPodViewParts {
  /** The last resizes, from any requester. */
  readonly history: ResizeHistory;
  /** The order of all requests that set a pod's values. */
  readonly newest: NewestValues;
  /** One transaction at a time for a pod, by {@link lockKeyOf}. */
  readonly lock: KeyedLock;
  /** One update of the runtime at a time for a container, by its id: taken inside the pod's lock, or without it. */
  readonly calls: KeyedLock;
  /** Pods whose volumes grow when no more updates come, by sandbox id. */
  readonly growthTimers: Map<string, NodeJS.Timeout>;
  /** The cgroups of running containers, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** What kubelet's static CPU and memory managers have assigned to containers. */
  readonly managers: ResourceManagers;
  /** The node's allocatable in the API server, as far as it is known. */
  readonly allocatable: NodeAllocatable;
  /** The requests of pods that a ResizePod has changed. */
  readonly admitted: AdmittedRequests;
  /** The maximum time of reclaim for a lower memory limit, in milliseconds. */
  readonly reclaimTimeout: number;
  readonly counters: Counters;
  /** The store of recent resizes; undefined without the page that shows them. */
  readonly recent?: RecentResizes;
  /** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
  readonly failOpen: FailOpen;
}

/** The parts that the context is made of. Optional parts have a default without effect. */
export interface ResizeContextOptions
  extends Pick<
    ResizeContext,
    'registry' | 'backend' | 'journal' | 'tree' | 'volumes' | 'reclaimTimeout' | 'recent' | 'procRoot'
  > {
  readonly log?: Log;
  readonly counters?: Counters;
  readonly kubelet?: KubeletState;
  readonly managers?: ResourceManagers;
  readonly specs?: PodSpecs;
  readonly allocatable?: NodeAllocatable;
  /** Whether volumes without an annotation may follow the pod limit. */
  readonly volumesFollow?: FollowSetting;
  readonly clock?: Clock;
}

/** Creates the context, and watches the registry for it. */
export function createResizeContext({
  log = noLog,
  counters = noCounters,
  kubelet = noKubeletState,
  managers = noResourceManagers,
  specs = noPodSpecs,
  allocatable = noNodeAllocatable,
  volumesFollow = 'auto',
  clock = systemClock,
  ...given
}: ResizeContextOptions): ResizeContext {
  const { registry } = given;
  const context: ResizeContext = {
    ...given,
    policies: new VolumePolicies({
      follow: volumesFollow,
      declared: declaredVolumes(registry, specs),
      nodeMemory: (sandboxId) => nodeMemory({ ...given, allocatable }, registry.knownPod(sandboxId)),
    }),
    outcomes: new PodOutcomes(counters),
    history: new ResizeHistory({
      log,
      isKnown: (sandboxId) => registry.knownPod(sandboxId) !== undefined,
      nameOf: (containerId) => registry.container(containerId)?.name ?? containerId,
    }),
    newest: new NewestValues(),
    // A section under the lock must not find memory.high as a hold has lowered it.
    lock: new KeyedLock((key) => releaseHold(context, key)),
    calls: new KeyedLock(),
    growthTimers: new Map(),
    cgroups: new Map(),
    kubelet,
    managers,
    specs,
    allocatable,
    admitted: new AdmittedRequests(),
    decreaseReclaimer: createDecreaseReclaimer(() => context, { clock, log, counters }),
    pendingPodLimits: new Map(),
    log,
    counters,
    failOpen: failOpenReport(counters, log),
  };
  watchRegistry(context);
  restoreVolumesOnceRead(context);
  return context;
}

/** Restores the volume records of all pods once the journal is read, and of those whose records could be read only after that. */
function restoreVolumesOnceRead(context: Pick<ResizeContext, 'registry' | 'journal' | 'policies' | 'outcomes'>): void {
  const { registry, journal } = context;
  // Also for pods that are added while the journal is read.
  void journal.restored().then(() => registry.pods.forEach((pod) => restoreVolumes(context, pod)));
  journal.onLate((late) => {
    const uids = new Set(late.map(({ podUid }) => podUid));
    for (const pod of registry.pods)
      if (uids.has(pod.metadata.uid) || uids.has(pod.sandboxId)) restoreVolumes(context, pod);
  });
}

/** Ends the hold of a pod's usage. Undefined when there is none. */
function releaseHold(
  { registry, decreaseReclaimer }: Pick<ResizeContext, 'registry' | 'decreaseReclaimer'>,
  key: string,
): Promise<void> | undefined {
  const pod = registry.pods.find((known) => lockKeyOf(known) === key);
  return pod && decreaseReclaimer.release(pod.metadata.uid);
}

/** Returns the memory for pods as kubelet counts it. Undefined for a pod that is not known or has no cgroup of its own. */
const nodeMemory = (parts: AllocatableParts, pod: PodDescription | undefined): Bytes | undefined =>
  pod === undefined || !hasPodCgroup(pod) ? undefined : memorySizes(parts, pod)[0];

/** Returns the memory-backed volumes in the spec of a pod, by its sandbox id. */
const declaredVolumes = (registry: Registry, specs: PodSpecs) => (sandboxId: string) => {
  const pod = registry.pods.find((known) => known.sandboxId === sandboxId);
  return pod && specs.of(identityOf(pod))?.volumes;
};

type WatchParts = PodLifecycleParts &
  Pick<
    ResizeContext,
    | 'growthTimers'
    | 'outcomes'
    | 'history'
    | 'newest'
    | 'pendingPodLimits'
    | 'decreaseReclaimer'
    | 'admitted'
    | 'cgroups'
  >;

/** Learns pods when they are added, and drops what is stored for pods and containers when they are removed. */
function watchRegistry(context: WatchParts): void {
  const { registry } = context;
  registry.watch({
    podAdded(pod) {
      learnPodVolumes(context, pod);
      context.journal.sandboxAdded(pod);
      context.decreaseReclaimer.podAdded(pod.metadata.uid);
    },
    podRemoved(pod) {
      const { sandboxId } = pod;
      clearTimeout(context.growthTimers.get(sandboxId));
      context.growthTimers.delete(sandboxId);
      context.policies.forget(sandboxId);
      context.outcomes.forget(sandboxId);
      context.history.forget(sandboxId);
      context.newest.forget(sandboxId);
      context.pendingPodLimits.delete(sandboxId);
      const { uid } = pod.metadata;
      if (!registry.pods.some((other) => other.metadata.uid === uid)) {
        context.decreaseReclaimer.podRemoved(uid);
        context.admitted.forget(uid);
      }
      forgetPodRecord(context, pod);
    },
    containerRemoved(containerId) {
      context.cgroups.delete(containerId);
      context.outcomes.forgetContainer(containerId);
    },
  });
}
