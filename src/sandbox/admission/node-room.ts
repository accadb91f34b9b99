import { type CgroupPath, type CgroupTree, isKubeletCgroup, meminfoSize, procText } from '../../cgroups/index.ts';
import { type Bytes, bytes, Code, type Limit, Reason, ShimError } from '../../core/index.ts';
import { type PodEntry, quotaToMilliCpu } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { compareLimits, sameMemory } from '../plan/amounts.ts';
import type { AdmittedRecord, AdmittedRequestsOfPod, DesiredPod } from '../plan/resize-request.ts';
import type { Amounts } from '../pods/declared-pod.ts';
import { podName } from '../pods/names.ts';
import type { NodeAllocatable } from '../pods/pod-spec.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { podCgroup } from '../pods/read-pod.ts';
import { formatOf } from './pod-level.ts';
import { RESOURCES, type Resource, type TotalRequests } from './pod-requests.ts';

export interface RequestsChange {
  readonly before: TotalRequests;
  readonly after: TotalRequests;
}

/** The node's resources for the requests of its pods. */
export interface NodeRoom {
  /** Absent: not known. */
  readonly allocatable: { readonly [resource in Resource]?: Allocatable };
  /** The requests of the other pods. */
  readonly others: TotalRequests;
}

/**
 * KEP-1287: a request that the node can never fit is infeasible (EXCEEDS_NODE), one that does not fit next to the
 * requests of the other pods is deferred (NODE_FULL). Limits do not count, and a resource whose request does not rise
 * always fits.
 */
export function assertNodeHasRoom(pod: PodDescription, { before, after }: RequestsChange, room: NodeRoom): void {
  const raised = RESOURCES.filter((resource) => after[resource] > before[resource]);
  const checks = raised.flatMap((resource) => {
    const allocatable = room.allocatable[resource];
    return allocatable === undefined ? [] : [{ resource, asked: after[resource], ...allocatable }];
  });
  // First checks the requests that can never fit: a retry would not help.
  for (const check of checks) if (check.asked > check.amount) throw exceedsNode(pod, check);
  for (const check of checks) {
    const used = room.others[check.resource];
    if (check.asked + used > check.amount) throw nodeFull(pod, check, used);
  }
}

/**
 * Throws EXCEEDS_NODE for a memory limit that is raised above the limit of a parent cgroup of the pod: usage could
 * never reach it. kubelet's own cgroups do not count: kubepods is limited to the node's memory for pods, and Kubernetes
 * allows limits above that, or above the node's size.
 */
export function assertWithinCgroups(
  tree: Pick<CgroupTree, 'readLimitsNow'>,
  pod: PodDescription,
  state: PodState,
  { pod: own, containers }: DesiredPod,
): void {
  const all: [string, Limits, Limit<Bytes> | undefined][] = [
    [`pod ${podName(pod)}`, own, state.memory],
    ...[...containers].map(([name, limits]): [string, Limits, Limit<Bytes> | undefined] => [
      `container ${name}`,
      limits,
      memoryOf(state, name),
    ]),
  ];
  const others = limitsAbove(tree, pod, (cgroup) => !isKubeletCgroup(cgroup)).memory;
  const [least] = others.toSorted((one, other) => one.amount - other.amount);
  if (least === undefined) return;
  for (const [whose, { memory }, now] of all) {
    if (memory === undefined || memory === 'max' || memory <= least.amount) continue;
    if (now !== undefined && (compareLimits(memory, now) <= 0 || sameMemory(now, memory))) continue;
    const message = `${whose}: memory.max ${memory} is more than ${least.amount}: ${least.source}`;
    const found = String(least.amount);
    const context = { pod: pod.metadata.uid, file: 'memory.max', asked: String(memory), found };
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.EXCEEDS_NODE, message, context);
  }
}

/** Returns the memory limit that a container has now. Undefined if unknown. */
function memoryOf({ declared, containers }: PodState, name: string): Limit<Bytes> | undefined {
  const found = declared?.containers.find((one) => one.name === name);
  const live = containers.find(({ id }) => id === found?.id);
  return live === undefined ? found?.limits && (found.limits.memory ?? 'max') : live.memory;
}

interface Check extends Allocatable {
  readonly resource: Resource;
  readonly asked: number;
}

function exceedsNode(pod: PodDescription, { resource, asked, amount, source }: Check): ShimError {
  const [wanted, most] = [formatOf(resource, asked), formatOf(resource, amount)];
  const message = `pod ${podName(pod)}: a ${nameOf(resource)} request of ${wanted} is more than ${most}: ${source}`;
  return refusal(Reason.EXCEEDS_NODE, pod, message, wanted, most);
}

function nodeFull(pod: PodDescription, { resource, asked, amount, source }: Check, used: number): ShimError {
  const [wanted, most] = [formatOf(resource, asked), formatOf(resource, amount)];
  const free = formatOf(resource, Math.max(0, amount - used));
  const message =
    `pod ${podName(pod)}: a ${nameOf(resource)} request of ${wanted} does not fit now: other pods have requested ` +
    `${formatOf(resource, used)} of ${most} (${source}), ${free} is free`;
  return refusal(Reason.NODE_FULL, pod, message, wanted, free);
}

function refusal(reason: Reason, pod: PodDescription, message: string, asked: string, found: string): ShimError {
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { pod: pod.metadata.uid, asked, found });
}

const nameOf = (resource: Resource): string => (resource === 'memory' ? 'memory' : 'CPU');
/** The total that all pods may request, and the source of this figure. */
interface Allocatable {
  readonly amount: number;
  readonly source: string;
}

/** The limit of a cgroup above a pod's. */
export interface LimitAbove extends Allocatable {
  readonly cgroup: CgroupPath;
}

/** The sources for the memory and CPU that pods of the node may use. */
export interface AllocatableSources {
  readonly tree: Pick<CgroupTree, 'readLimitsNow'>;
  /** The allocatable of the Node object, if the API server reports it. */
  readonly allocatable: NodeAllocatable;
  /** Default: /proc. */
  readonly procRoot?: string;
}

/**
 * Returns the memory and the CPUs that all pods together may request; a resource is absent if it is unknown. The source
 * is the Node object, otherwise the size of the node. A lower finite limit of a parent cgroup of the pod takes
 * precedence: kubelet limits the memory of kubepods to what it reserves for pods (kubelet
 * pkg/kubelet/cm/node_container_manager_linux.go, enforceNodeAllocatableCgroups).
 */
export function nodeAllocatable(
  sources: AllocatableSources,
  pod: PodDescription,
): { readonly memory?: Allocatable; readonly milliCpu?: Allocatable } {
  const inApi = sources.allocatable.amounts();
  const node = inApi ?? nodeSize(sources.procRoot);
  const source = inApi === undefined ? 'the node has no more' : "the node's allocatable";
  const above = limitsAbove(sources.tree, pod);
  const memory = least(node.memory, source, above.memory);
  const milliCpu = least(node.milliCpu, source, above.milliCpu);
  return { ...(memory && { memory }), ...(milliCpu && { milliCpu }) };
}

/**
 * Returns possible values of the node's memory for pods as kubelet counts it (GetNodeAllocatableAbsolute), the smallest
 * first. kubelet limits the memory of kubepods to this value. The Node object reports less, by the eviction threshold.
 */
export function memorySizes(sources: AllocatableSources, pod: PodDescription): readonly Bytes[] {
  const above = limitsAbove(sources.tree, pod)
    .memory.map(({ amount }) => amount)
    .sort((one, other) => one - other);
  const all = [...above, sources.allocatable.amounts()?.memory, nodeSize(sources.procRoot).memory];
  return all.filter((size) => size !== undefined).map(bytes);
}

const least = (amount: number | undefined, source: string, above: readonly Allocatable[]): Allocatable | undefined =>
  [...(amount === undefined ? [] : [{ amount, source }]), ...above].sort((one, other) => one.amount - other.amount)[0];

/**
 * Returns the finite limits of the cgroups above the pod's. Throws CGROUP_UNAVAILABLE when one cannot be read.
 * @param counts whether a cgroup counts; the others are not read
 */
export function limitsAbove(
  tree: Pick<CgroupTree, 'readLimitsNow'>,
  pod: PodDescription,
  counts: (cgroup: CgroupPath) => boolean = () => true,
): { readonly memory: readonly LimitAbove[]; readonly milliCpu: readonly LimitAbove[] } {
  const names = podCgroup(pod).split('/').slice(1, -1);
  const cgroups = names.map((_, index) => `/${names.slice(0, index + 1).join('/')}`).filter(counts);
  const limits = cgroups.map((cgroup) => ({
    cgroup,
    source: `cgroup ${cgroup} allows no more`,
    ...tree.readLimitsNow(cgroup),
  }));
  return {
    memory: limits.flatMap(({ cgroup, source, memoryMax }) =>
      memoryMax === 'max' ? [] : [{ cgroup, source, amount: memoryMax }],
    ),
    milliCpu: limits.flatMap(({ cgroup, source, cpuMax }) =>
      cpuMax === undefined || cpuMax.quota === 'max'
        ? []
        : [{ cgroup, source, amount: quotaToMilliCpu(cpuMax.quota, cpuMax.period) }],
    ),
  };
}

/**
 * Returns the node's memory and online CPUs. Reads /proc, because the process itself may be limited to a part of the
 * CPUs (systemd CPUAffinity=). Omits a value that cannot be read.
 */
export function nodeSize(procRoot = '/proc'): Amounts {
  const memory = meminfoSize(procRoot, 'MemTotal');
  // /proc/stat has a line for each online CPU (proc_stat(5)).
  const cpus = procText(procRoot, 'stat').match(/^cpu\d+ /gm)?.length ?? 0;
  return { ...(memory !== undefined && { memory: bytes(memory) }), ...(cpus > 0 && { milliCpu: cpus * 1000 }) };
}

/**
 * The requests of pods that a ResizePod has changed (KEP-1287, allocated resources). They are not in kubelet's
 * checkpoint, and the kernel has no file for a memory request. The journal stores them for the next process.
 */
export class AdmittedRequests {
  readonly #pods = new Map<string, AdmittedRecord>();

  /** Pods with changed requests, by uid. */
  get uids(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /**
   * Records a pod's requests. Returns a function that restores the previous record, unless the record was removed or
   * replaced meanwhile. The function returns whether it restored the record.
   * @param entry kubelet's present entry for the pod
   */
  record(podUid: string, { memory, milliCpu }: TotalRequests, entry: PodEntry | undefined): () => boolean {
    const present = this.#pods.get(podUid);
    const before = present === undefined ? null : withoutBefore(present);
    const own = { memory, milliCpu, kubelet: keyOf(entry), before };
    this.#pods.set(podUid, own);
    return () => {
      // The pod may have been removed, or its record replaced.
      if (this.#pods.get(podUid) !== own) return false;
      this.restore(podUid, before ?? undefined);
      return true;
    };
  }

  /** Returns the record of a pod's last change for the journal, with the requests to restore after a rollback. */
  recordOf(podUid: string): AdmittedRecord | undefined {
    return this.#pods.get(podUid);
  }

  /** Replaces the record of a pod by that of the journal. */
  restore(podUid: string, record: AdmittedRecord | undefined): void {
    if (record === undefined) this.#pods.delete(podUid);
    else this.#pods.set(podUid, record);
  }

  /** Returns a pod's requests; undefined if none are recorded, or if kubelet has admitted others since. */
  of(podUid: string, entry: PodEntry | undefined): TotalRequests | undefined {
    const found = this.#pods.get(podUid);
    if (found?.kubelet !== keyOf(entry)) return undefined;
    return { memory: found.memory, milliCpu: found.milliCpu };
  }

  forget(podUid: string): void {
    this.#pods.delete(podUid);
  }
}

const withoutBefore = ({ memory, milliCpu, kubelet }: AdmittedRecord): AdmittedRequestsOfPod => ({
  memory,
  milliCpu,
  kubelet,
});

const keyOf = (entry: PodEntry | undefined): string =>
  JSON.stringify([[...(entry?.requests?.containers ?? [])], entry?.requests?.pod]);
