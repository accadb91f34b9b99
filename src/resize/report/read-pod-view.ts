import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Backend, type CallOptions, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { type CurrentContainers, currentContainers } from './current-containers.ts';
import { type Bytes, type CpuShares, type Limit, bytes, reportedShares } from '../../core/quantities/index.ts';
import { type CgroupPath, type CgroupTree, readLoad } from '../../cgroups/index.ts';
import type { MemoryVolumes, PodVolumes } from '../../tmpfs/index.ts';
import type { Log } from '../../observe/index.ts';
import type { PendingKubeletResize, ActualValues, PodListing, PodView } from './pod-view.ts';
import { type DecreaseReclaimer, type PendingPodLimits, pendingResizeOf } from '../foresight/index.ts';
import { type VolumePolicies, observeVolumes } from '../volumes/index.ts';
import {
  type DeclaredPod,
  NO_CPU_LIMIT,
  type PodSpecs,
  type DeclarePodParts,
  type Registry,
  containerCgroup,
  declarePod,
  podCgroup,
  readPod,
  readVolumes,
} from '../../sandbox/index.ts';
import type { PodJournal } from '../journal/index.ts';
import type { PodOutcomes } from '../history/index.ts';
import type { KubeletState } from '../../kubelet/index.ts';

/** The parts that a report of a pod uses. */
export interface ReadPodViewParts {
  readonly registry: Registry;
  /** The client of containerd for the shim's own calls. */
  readonly backend: Backend;
  readonly journal: PodJournal;
  readonly tree: CgroupTree;
  readonly volumes: MemoryVolumes;
  readonly policies: VolumePolicies;
  /** The outcomes of each pod's requests, for its status. */
  readonly outcomes: PodOutcomes;
  /** What kubelet has written of its pods: a hint at the calls that it is about to make. */
  readonly kubelet: KubeletState;
  /** The specs of pods in the API server, as far as they are known. */
  readonly specs: PodSpecs;
  /** Reclaims memory for the memory decreases that kubelet has admitted. */
  readonly decreaseReclaimer: DecreaseReclaimer;
  /** The pending limits of pods in the middle of a kubelet resize, by sandbox id. */
  readonly pendingPodLimits: Map<string, PendingPodLimits>;
  readonly log: Log;
  /** Where processes are found: /proc, except in tests. */
  readonly procRoot?: string;
}

/** Reads a pod's actual values from the kernel. See {@link ReadPodView}. */
export async function readPodView(
  context: ReadPodViewParts,
  sandboxId: string,
  listed?: PodListing,
  signal?: AbortSignal,
): Promise<PodView> {
  const options = signal && { signal };
  const pod = await context.registry.pod(sandboxId, options);
  if (pod === undefined)
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod ${sandboxId}`, { pod: sandboxId });
  await context.journal.restored();
  const failed = context.journal.transactionOf(pod)?.failed;
  const limits = await limitsOf(context, podCgroup(pod), pod.cpuShares);
  const current = await currentContainers(context, pod, listed?.containers, options);
  const containers = await containersOf(context, pod, current);
  const registry = describedOnce(context, current, options);
  const declared = await declarePod({ ...context, registry }, pod);
  const kubelet = await pendingOf(context, pod, declared);
  return {
    limits,
    containers,
    volumes: volumesOf({ ...context, volumes: listed?.volumes ?? context.volumes }, pod, limits.memory),
    outcome: context.outcomes.of(pod.sandboxId),
    lastError: failed === undefined ? undefined : { reason: Reason.UNDO_FAILED, message: failed },
    ...(kubelet && { kubelet }),
    declared: inStableOrder(declared),
  };
}

const byName = (one: { readonly name: string }, other: { readonly name: string }): number =>
  one.name < other.name ? -1 : Number(one.name > other.name);

/** The spec has an order of its own. The order of creation changes with each restart of a container. */
const inStableOrder = (declared: DeclaredPod): DeclaredPod =>
  declared.source === 'spec' ? declared : { ...declared, containers: declared.containers.toSorted(byName) };

async function pendingOf(
  context: Pick<ReadPodViewParts, 'registry' | 'tree' | 'kubelet' | 'decreaseReclaimer' | 'pendingPodLimits'>,
  pod: PodDescription,
  declared: DeclaredPod,
): Promise<PendingKubeletResize | undefined> {
  context.kubelet.refresh();
  // Usually kubelet has no entry for the pod, and the pod's state need not be read.
  if (context.kubelet.allocated(pod.metadata.uid) === undefined) return undefined;
  const state = await readPod(context.tree, pod, [], declared);
  const pending = pendingResizeOf(context, pod, state);
  return pending && { values: pending, decrease: context.decreaseReclaimer.reportOf(pod.metadata.uid) };
}

/** Returns the listed containers and their descriptions, and asks the backend only for those that are not there. */
const describedOnce = (
  { registry }: Pick<ReadPodViewParts, 'registry'>,
  { listed, described }: CurrentContainers,
  options: CallOptions | undefined,
): DeclarePodParts['registry'] => ({
  listContainers: () => Promise.resolve(listed),
  async describeContainer(id) {
    return described.get(id) ?? (await registry.describeContainer(id, options));
  },
});

async function containersOf(
  context: Pick<ReadPodViewParts, 'tree' | 'procRoot'>,
  pod: PodDescription,
  { described }: CurrentContainers,
): Promise<PodView['containers']> {
  const views: PodView['containers'][number][] = [];
  for (const container of described.values()) {
    if (container.state !== ContainerState.RUNNING) continue;
    const cgroup = await containerCgroup(container, pod, context.procRoot);
    if (cgroup === undefined) continue;
    views.push({
      id: container.containerId,
      name: container.name,
      limits: await limitsOf(context, cgroup, reportedShares(container.resources?.cpu_shares ?? 0n)),
    });
  }
  return views.toSorted(byName);
}

async function limitsOf(
  context: { readonly tree: CgroupTree },
  cgroup: CgroupPath,
  shares: CpuShares | undefined,
): Promise<ActualValues> {
  const { memoryMax, cpuMax, cpuWeight } = await context.tree.readLimits(cgroup);
  const current = context.tree.readMemoryCurrent(cgroup);
  return {
    memory: memoryMax,
    memoryUsed: current,
    cpu: cpuMax ?? NO_CPU_LIMIT,
    ...(shares !== undefined && { shares }),
    weight: cpuWeight,
    load: await readLoad(context.tree, cgroup),
  };
}

function volumesOf(
  context: Pick<ReadPodViewParts, 'registry' | 'journal' | 'policies' | 'outcomes' | 'log'> & {
    readonly volumes: PodVolumes;
  },
  pod: PodDescription,
  podLimit: Limit<Bytes>,
): PodView['volumes'] {
  const volumes = readVolumes(context.volumes, pod);
  // Takes over remounts by other programs first, so that the reported policies are up to date.
  observeVolumes(context, pod, volumes, podLimit);
  return volumes.toSorted(byName).map(({ name, size }) => {
    const { used } = context.volumes.measure({ podUid: pod.metadata.uid, name });
    return { name, size, used: bytes(used), policy: context.policies.policy(pod.sandboxId, name) };
  });
}
