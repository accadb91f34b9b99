import { type CgroupLoad, type CgroupPath, type CgroupTree, readLoad } from '../../cgroups/index.ts';
import type { CancelSignal } from '../../core/index.ts';
import {
  type Bytes,
  bytes,
  Code,
  type CpuShares,
  type CpuWeight,
  type Limit,
  Reason,
  reportedShares,
  ShimError,
} from '../../core/index.ts';
import {
  type CallOptions,
  type ContainerDescription,
  ContainerState,
  type PodDescription,
} from '../../runtime/index.ts';
import type { PodVolumes, VolumePolicy } from '../../tmpfs/index.ts';
import type { DecreaseReport } from '../foresight/decrease.ts';
import type { DecreaseReclaimer } from '../foresight/decrease-reclaimer.ts';
import type { PodOutcome } from '../history/outcomes.ts';
import type { Node } from '../node.ts';
import type { Explanation } from '../plan/failures.ts';
import type { KnownValues } from '../plan/value-changes.ts';
import type { ListedContainers } from '../pods/container-lists.ts';
import { type DeclarationSources, declarePod } from '../pods/declare-pod.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import type { EffectiveLimits } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT, podCgroup, readPod, readVolumes } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { observeVolumes } from '../volumes/volume-tracking.ts';

/**
 * The actual values of a pod or a container: its limits, its usage and its weight. Undefined: unknown, or the
 * controller is not enabled.
 */
export interface ActualValues extends EffectiveLimits {
  readonly memoryUsed: Bytes | undefined;
  readonly weight: CpuWeight | undefined;
  /** Memory that cannot be reclaimed, CPU time, and how long its tasks wait. Absent: not read. */
  readonly load?: CgroupLoad;
}

/** The actual values of a pod. */
export interface PodView {
  readonly limits: ActualValues;
  /** Running containers by name, without the sandbox container. */
  readonly containers: readonly { readonly id: string; readonly name: string; readonly limits: ActualValues }[];
  /** By name. */
  readonly volumes: readonly {
    readonly name: string;
    readonly size: Bytes;
    readonly used: Bytes;
    readonly policy: VolumePolicy;
  }[];
  /** The result of the requests since the start of the shim. */
  readonly outcome: Pick<PodOutcome, 'desired' | 'allocated' | 'actuated' | 'volumeErrors'>;
  /** A failure that the pod has not been recovered from, e.g. UNDO_FAILED. */
  readonly lastError: Explanation | undefined;
  /** The resize that kubelet has admitted and not actuated; absent if none is known. */
  readonly kubelet?: PendingKubeletResize;
  /** The pod as it is declared. */
  readonly declared?: DeclaredPod;
}

/** The pending kubelet resize of a pod. */
export interface PendingKubeletResize {
  readonly values: KnownValues<Bytes>;
  /** The state of a memory decrease that usage blocks. */
  readonly decrease: DecreaseReport | undefined;
}

/** Data that the descriptions of all pods share. */
export interface PodListing {
  /** The pod's containers. If they have changed since, they are listed again. */
  readonly containers: ListedContainers;
  readonly volumes: PodVolumes;
}

/**
 * Reads a pod's actual values. Rejects with a ShimError when they cannot be read; NOT_FOUND when the pod is gone.
 * @param listed what the caller has just read for all pods, this one included
 * @param signal cancels the calls to the backend
 */
export type ReadPodView = (sandboxId: string, listed?: PodListing, signal?: CancelSignal) => Promise<PodView>;

/** Reads a pod's actual values from the kernel. See {@link ReadPodView}. */
export async function readPodView(
  node: Node,
  decreaseReclaimer: DecreaseReclaimer,
  sandboxId: string,
  listed?: PodListing,
  signal?: CancelSignal,
): Promise<PodView> {
  const options = signal && { signal };
  const pod = await node.registry.pod(sandboxId, options);
  if (pod === undefined)
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod ${sandboxId}`, { pod: sandboxId });
  await node.journal.restored();
  const failed = node.journal.transactionOf(pod)?.failed;
  const limits = await limitsOf(node.tree, podCgroup(pod), pod.cpuShares);
  const current = await currentContainers(node, pod, listed?.containers, options);
  const containers = await containersOf(node, pod, current);
  const registry = describedOnce(node.registry, current, options);
  const declared = await declarePod({ ...node, registry }, pod);
  const kubelet = await pendingOf(node, decreaseReclaimer, pod, declared);
  return {
    limits,
    containers,
    volumes: volumesOf(node, listed?.volumes ?? node.volumes, pod, limits.memory),
    outcome: node.outcomes.of(pod.sandboxId),
    lastError: failed === undefined ? undefined : { reason: Reason.UNDO_FAILED, message: failed },
    ...(kubelet && { kubelet }),
    declared: inStableOrder(declared),
  };
}

const byName = (one: { readonly name: string }, other: { readonly name: string }): number =>
  one.name < other.name ? -1 : Number(one.name > other.name);

/** Sorts the containers, because the order of creation changes with each restart. The spec has its own order. */
const inStableOrder = (declared: DeclaredPod): DeclaredPod =>
  declared.source === 'spec' ? declared : { ...declared, containers: declared.containers.toSorted(byName) };

async function pendingOf(
  node: Node,
  decreaseReclaimer: DecreaseReclaimer,
  pod: PodDescription,
  declared: DeclaredPod,
): Promise<PendingKubeletResize | undefined> {
  node.kubelet.refresh();
  // Usually kubelet has no entry for the pod, and the pod's state need not be read.
  if (node.kubelet.allocated(pod.metadata.uid) === undefined) return undefined;
  const state = await readPod(node.tree, pod, [], declared);
  const pending = node.pending.of(pod, state);
  return pending && { values: pending, decrease: decreaseReclaimer.reportOf(pod.metadata.uid) };
}

/** Returns the listed containers and their descriptions. Asks the backend only for missing descriptions. */
const describedOnce = (
  registry: Registry,
  { listed, described }: CurrentContainers,
  options: CallOptions | undefined,
): DeclarationSources['registry'] => ({
  listContainers: () => Promise.resolve(listed),
  async describeContainer(id) {
    return described.get(id) ?? (await registry.describeContainer(id, options));
  },
});

async function containersOf(
  node: Node,
  pod: PodDescription,
  { described }: CurrentContainers,
): Promise<PodView['containers']> {
  const views: PodView['containers'][number][] = [];
  for (const container of described.values()) {
    if (container.state !== ContainerState.CONTAINER_RUNNING) continue;
    const cgroup = await node.cgroups.of(container, pod);
    if (cgroup === undefined) continue;
    views.push({
      id: container.containerId,
      name: container.name,
      limits: await limitsOf(node.tree, cgroup, reportedShares(container.resources?.cpu_shares ?? 0n)),
    });
  }
  return views.toSorted(byName);
}

async function limitsOf(tree: CgroupTree, cgroup: CgroupPath, shares: CpuShares | undefined): Promise<ActualValues> {
  const { memoryMax, cpuMax, cpuWeight } = await tree.readLimits(cgroup);
  const current = tree.readMemoryCurrent(cgroup);
  return {
    memory: memoryMax,
    memoryUsed: current,
    cpu: cpuMax ?? NO_CPU_LIMIT,
    ...(shares !== undefined && { shares }),
    weight: cpuWeight,
    load: await readLoad(tree, cgroup),
  };
}

function volumesOf(node: Node, mounted: PodVolumes, pod: PodDescription, podLimit: Limit<Bytes>): PodView['volumes'] {
  const volumes = readVolumes(mounted, pod);
  // Takes over remounts by other programs first, so that the reported policies are up to date.
  observeVolumes(node, pod, volumes, podLimit);
  return volumes.toSorted(byName).map(({ name, size }) => {
    const { used } = mounted.measure({ podUid: pod.metadata.uid, name });
    return { name, size, used: bytes(used), policy: node.policies.policy(pod.sandboxId, name) };
  });
}

/** The containers of a pod as the backend lists and describes them. */
interface CurrentContainers {
  readonly listed: ListedContainers;
  /** By id: those that have not ended, as far as the backend describes them. */
  readonly described: ReadonlyMap<string, ContainerDescription>;
}

interface ContainerSources {
  readonly registry: Registry;
}

/**
 * Lists and describes the containers of a pod. Ended ones are not described: containers do not start twice. Rejects
 * when the backend cannot be asked.
 * @param listed the pod's containers from a list of all pods. If a container was created, removed, started or ended
 * since, the pod's containers are listed again
 */
async function currentContainers(
  sources: ContainerSources,
  pod: PodDescription,
  listed?: ListedContainers,
  options?: CallOptions,
): Promise<CurrentContainers> {
  if (listed !== undefined && areKnown(sources.registry, pod, listed)) {
    const current = await describeListed(sources, listed, options);
    if (isUnchanged(current)) return current;
  }
  return describeListed(sources, await sources.registry.listContainers(pod, options), options);
}

/** Whether the registry knows exactly the listed containers: it learns which ones are created and removed. */
function areKnown(registry: Registry, { sandboxId }: PodDescription, listed: ListedContainers): boolean {
  const known = new Set(registry.containersOf(sandboxId).map(({ containerId }) => containerId));
  return known.size === listed.length && listed.every(({ id }) => known.has(id));
}

async function describeListed(
  { registry }: ContainerSources,
  listed: ListedContainers,
  options: CallOptions | undefined,
): Promise<CurrentContainers> {
  const described = new Map<string, ContainerDescription>();
  for (const { id } of listed.filter(hasNotEnded)) {
    const container = await registry.describeContainer(id, options);
    if (container !== undefined) described.set(id, container);
  }
  return { listed, described };
}

const isUnchanged = ({ listed, described }: CurrentContainers): boolean =>
  listed.filter(hasNotEnded).every(({ id, state }) => described.get(id)?.state === state);

const hasNotEnded = ({ state }: ListedContainers[number]): boolean => state !== ContainerState.CONTAINER_EXITED;
