import type { CgroupPath, CgroupTree } from '../cgroups/index.ts';
import type { Backend, PodDescription } from '../runtime/index.ts';
import { messageOf } from '../errors/index.ts';
import { type Counters, type FailOpenReason, type Log, noCounters, noLog, oncePerKey } from '../observe/index.ts';
import type { MemoryVolumes } from '../tmpfs/index.ts';
import type { Bytes } from '../units/index.ts';
import { type DecreaseHelp, type KubeletState, type PodForeseen, noKubeletState } from './foresight/index.ts';
import { type Clock, systemClock } from './clock.ts';
import { decreaseHelpFor } from './decrease-help.ts';
import { hasPodCgroup, podCgroup, readVolumes } from './live.ts';
import { forgetDeleted } from './deleted-pods.ts';
import { meetVolumes } from './known-volumes.ts';
import { KeyedLock } from './lock.ts';
import { PodOutcomes } from './outcomes.ts';
import type { PodJournal } from './pod-journal.ts';
import type { RecentResizes } from './recent-resizes.ts';
import type { Registry } from './registry.ts';
import { VolumePolicies } from './volumes.ts';

/** What every resize on this node works with. */
export interface ResizeContext {
  readonly registry: Registry;
  /** For calls of the shim's own. */
  readonly backend: Backend;
  readonly journal: PodJournal;
  readonly tree: CgroupTree;
  readonly volumes: MemoryVolumes;
  readonly policies: VolumePolicies;
  /** How the requests of each pod went, for its status. */
  readonly outcomes: PodOutcomes;
  /** One transaction at a time for a pod, by sandbox id. */
  readonly lock: KeyedLock;
  /** One update of the runtime at a time for a container, by its id: taken inside the pod's lock, or without it. */
  readonly calls: KeyedLock;
  /** Pods whose volumes grow when no more updates come, by sandbox id. */
  readonly settling: Map<string, NodeJS.Timeout>;
  /** Where the cgroups of running containers lie, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** What kubelet has written of its pods: a hint at what it is about to ask for. */
  readonly kubelet: KubeletState;
  /** Makes what kubelet has admitted possible, where more is in use than its new limit. */
  readonly decreaseHelp: DecreaseHelp;
  /** What that came to for pods in the middle of a resize, by sandbox id. */
  readonly foreseen: Map<string, PodForeseen>;
  /** The longest that memory is reclaimed for a lower limit, in milliseconds. */
  readonly reclaimTimeout: number;
  readonly log: Log;
  readonly counters: Counters;
  /** Where the last resizes are kept; undefined where nobody can look at them. */
  readonly recent?: RecentResizes;
  /** Where processes are found: /proc unless a test says otherwise. */
  readonly procRoot?: string;
  /** Counts that a request goes on as it came, and says so once for each id and reason. */
  failOpen(reason: FailOpenReason, id: string, error?: unknown): void;
}

/** Also watches the registry: what is kept for a pod or a container goes with it. */
export function createResizeContext(parts: {
  registry: Registry;
  backend: Backend;
  journal: PodJournal;
  tree: CgroupTree;
  volumes: MemoryVolumes;
  log?: Log;
  counters?: Counters;
  kubelet?: KubeletState;
  clock?: Clock;
  procRoot?: string;
  recent?: RecentResizes;
  reclaimTimeout: number;
}): ResizeContext {
  const {
    registry,
    backend,
    journal,
    tree,
    volumes,
    log = noLog,
    counters = noCounters,
    kubelet = noKubeletState,
    clock = systemClock,
    procRoot,
    recent,
    reclaimTimeout,
  } = parts;
  const first = oncePerKey();
  const context: ResizeContext = {
    registry,
    backend,
    journal,
    tree,
    volumes,
    policies: new VolumePolicies(),
    outcomes: new PodOutcomes(counters),
    lock: new KeyedLock(),
    calls: new KeyedLock(),
    settling: new Map(),
    cgroups: new Map(),
    kubelet,
    decreaseHelp: decreaseHelpFor(() => context, { clock, log, counters }),
    foreseen: new Map(),
    reclaimTimeout,
    log,
    counters,
    ...(procRoot === undefined ? {} : { procRoot }),
    ...(recent === undefined ? {} : { recent }),
    failOpen(reason, given, error) {
      counters.failOpen(reason);
      // Of a caller who gives no id, it may be anything.
      const id = given.slice(0, 128);
      if (!first(`${reason} ${id}`)) return;
      log.warn({ reason, id, ...(error === undefined ? {} : { error: messageOf(error) }) }, 'forwarded as it came');
    },
  };
  registry.watch({
    podAdded(pod) {
      meetPod(context, pod);
      context.decreaseHelp.look();
    },
    podRemoved(pod) {
      const { sandboxId } = pod;
      clearTimeout(context.settling.get(sandboxId));
      context.settling.delete(sandboxId);
      context.policies.forget(sandboxId);
      context.outcomes.forget(sandboxId);
      context.foreseen.delete(sandboxId);
      const { uid } = pod.metadata;
      if (!registry.pods.some((other) => other.metadata.uid === uid)) context.decreaseHelp.podRemoved(uid);
      forgetRecord(context, pod);
    },
    containerRemoved(containerId) {
      context.cgroups.delete(containerId);
      context.outcomes.forgetContainer(containerId);
    },
  });
  // Pods that come while the journal is still being read.
  void journal.restored().then(() => registry.pods.forEach((pod) => restoreVolumes(context, pod)));
  return context;
}

/** What an earlier shim, or an earlier sandbox of the pod, has left. */
function restoreVolumes({ policies, outcomes, journal }: ResizeContext, pod: PodDescription): void {
  const records = journal.volumesOf(pod);
  policies.restore(pod.sandboxId, records);
  const sizes = [...records].flatMap(([name, { policy, source, mount }]): [string, Bytes][] => {
    if (source === 'seen') return [];
    const size = policy.kind === 'absolute' ? policy.size : mount?.size;
    return size === undefined ? [] : [[name, size]];
  });
  outcomes.allocate(pod.sandboxId, new Map(sizes));
}

/** What is journalled of a pod goes with it; not while its volumes are there, which another sandbox of it may use. */
function forgetRecord(context: ResizeContext, pod: PodDescription): void {
  const { journal, volumes, log } = context;
  const forget = async (): Promise<void> => {
    if (volumes.ofPod(pod.metadata.uid).length === 0) await journal.forget(pod);
    // Of pods whose volumes were still there when they went: kubelet has unmounted them by now.
    await forgetDeleted(context);
  };
  forget().catch((error: unknown) => {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'journal entry of a removed pod left');
  });
}

/** Loads what remounting takes before it is needed, on nodes that have something to remount. Says once how it is done. */
function prepareRemounts(volumes: MemoryVolumes, log: Log): void {
  if (volumes.isPrepared) return;
  volumes.method().then(
    (method) => log.info({ method: method.kind }, 'volumes are remounted by'),
    (error: unknown) => log.error({ error: messageOf(error) }, 'volumes cannot be remounted'),
  );
}

/** First sight of a pod: how its volumes are sized, by its annotations and by how they are mounted now. */
function meetPod(context: ResizeContext, pod: PodDescription): void {
  const { policies, outcomes, tree, volumes, log } = context;
  const faults = policies.annotate(pod.sandboxId, pod.annotations);
  outcomes.meet(
    pod.sandboxId,
    faults.map(({ message }) => message),
  );
  restoreVolumes(context, pod);
  for (const error of faults) log.warn({ pod: pod.sandboxId, error: error.message }, 'annotation left aside');
  try {
    if (!hasPodCgroup(pod)) return;
    const { memoryMax } = tree.readLimitsNow(podCgroup(pod));
    const mounted = readVolumes(volumes, pod);
    meetVolumes(context, pod, mounted, memoryMax);
    if (mounted.length > 0) prepareRemounts(volumes, log);
  } catch (error) {
    // A pod that has ended, say. Should it be resized after all, its volumes are met then.
    log.debug({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes not met at first sight');
  }
}
