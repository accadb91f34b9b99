import type { CgroupTree } from '../cgroups/index.ts';
import type { Counters, KeyedLock, Log } from '../core/index.ts';
import type { KubeletState, ResourceManagers } from '../kubelet/index.ts';
import type { Backend } from '../runtime/index.ts';
import type { MemoryVolumes } from '../tmpfs/index.ts';
import type { AdmittedRequests } from './admission/node-room.ts';
import type { PendingResizes } from './foresight/pending-kubelet-resize.ts';
import type { ResizeHistory } from './history/history.ts';
import type { NewestValues } from './history/newest-values.ts';
import type { PodOutcomes } from './history/outcomes.ts';
import type { RecentResizes } from './history/recent-resizes.ts';
import type { TransactionEvents } from './history/transaction-events.ts';
import type { PodJournal } from './journal/pod-journal.ts';
import type { ContainerCgroups } from './pods/container-cgroups.ts';
import type { FailOpen } from './pods/fail-open.ts';
import type { NodeAllocatable, PodSpecs } from './pods/pod-spec.ts';
import type { Registry } from './pods/registry.ts';
import type { GrowthTimers } from './volumes/growth-timers.ts';
import type { VolumePolicies } from './volumes/policies.ts';

/** This node: the objects that read and change its pods, and the known data about them. Exists once per process. */
export interface Node {
  /** The pods and containers. */
  readonly registry: Registry;
  /** The client of containerd for the shim's own calls. */
  readonly backend: Backend;
  readonly tree: CgroupTree;
  readonly cgroups: ContainerCgroups;
  readonly volumes: MemoryVolumes;
  readonly journal: PodJournal;
  readonly policies: VolumePolicies;
  readonly growth: GrowthTimers;
  /** The outcomes of each pod's requests, for its status. */
  readonly outcomes: PodOutcomes;
  /** The last resizes, from any requester. */
  readonly history: ResizeHistory;
  /** The order of all requests that set a pod's values. */
  readonly newest: NewestValues;
  /** Events of transactions. */
  readonly transactions: TransactionEvents;
  /** The store of recent resizes; undefined without the page that shows them. */
  readonly recent?: RecentResizes;
  /** Allows one transaction at a time per pod, by `lockKeyOf`. */
  readonly lock: KeyedLock;
  /** Allows one runtime update at a time per container, by its id. Acquired inside the pod's lock or without it. */
  readonly calls: KeyedLock;
  /** kubelet's own records of its pods. They show which calls kubelet is about to make. */
  readonly kubelet: KubeletState;
  readonly pending: PendingResizes;
  /** The assignments of kubelet's static CPU and memory managers. */
  readonly managers: ResourceManagers;
  /** The specs of pods in the API server, if known. */
  readonly specs: PodSpecs;
  /** The node's allocatable in the API server, if known. */
  readonly allocatable: NodeAllocatable;
  /** The requests of pods that a ResizePod has changed. */
  readonly admitted: AdmittedRequests;
  /** The maximum time of reclaim for a lower memory limit, in milliseconds. */
  readonly reclaimTimeout: number;
  /** Where processes are found: /proc, except in tests. */
  readonly procRoot?: string;
  readonly log: Log;
  readonly counters: Counters;
  /** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
  readonly failOpen: FailOpen;
}
