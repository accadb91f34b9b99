import type { CgroupPath, CgroupTree } from '../cgroups/index.ts';
import type { Backend } from '../runtime/index.ts';
import { messageOf } from '../core/errors/index.ts';
import { type Counters, type Log, noCounters, noLog, oncePerKey } from '../observe/index.ts';
import type { MemoryVolumes } from '../tmpfs/index.ts';
import type { FailOpen, Registry } from '../sandbox/index.ts';
import { type Clock, KeyedLock, systemClock } from '../core/concurrency/index.ts';
import { type DecreaseHelp, type PodForeseen, decreaseHelpFor } from './foresight/index.ts';
import { PodOutcomes, type RecentResizes } from './history/index.ts';
import type { PodJournal } from './journal/index.ts';
import { VolumePolicies } from './volumes/index.ts';
import { forgetPodRecord, learnPodVolumes, restoreVolumes } from './operations/index.ts';
import { type KubeletState, noKubeletState } from '../kubelet/index.ts';

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
  readonly failOpen: FailOpen;
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
      log.warn(
        { reason, id, ...(error === undefined ? {} : { error: messageOf(error) }) },
        'request forwarded unchanged',
      );
    },
  };
  registry.watch({
    podAdded(pod) {
      learnPodVolumes(context, pod);
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
      forgetPodRecord(context, pod);
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
