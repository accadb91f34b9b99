import { Code, Reason, ShimError } from '../errors/index.ts';
import { ContainerState, type PodDescription } from '../runtime/index.ts';
import { type Bytes, type Limit, bytes, cpuShares } from '../units/index.ts';
import type { ResizeContext } from './context.ts';
import { foreseenOf } from './foreseen.ts';
import { meetVolumes } from './known-volumes.ts';
import { NO_CPU_LIMIT, containerCgroup, podCgroup, readPod, readVolumes } from './live.ts';
import type { KubeletWants, LiveLimits, PodView } from './resizes/index.ts';
import type { CgroupPath } from '../cgroups/index.ts';

/** A pod's live values, as the kernel has them. See {@link DescribePod}. */
export async function describePod(context: ResizeContext, sandboxId: string): Promise<PodView> {
  const pod = await context.registry.pod(sandboxId);
  if (pod === undefined)
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod ${sandboxId}`, { pod: sandboxId });
  await context.journal.restored();
  const failed = context.journal.transactionOf(pod)?.failed;
  const limits = await limitsOf(context, podCgroup(pod), pod.cpuShares);
  const containers = await containersOf(context, pod);
  const kubelet = await wantsOf(context, pod);
  return {
    limits,
    containers,
    volumes: volumesOf(context, pod, limits.memory),
    outcome: context.outcomes.of(pod.sandboxId),
    lastError: failed === undefined ? undefined : { reason: Reason.UNDO_FAILED, message: failed },
    ...(kubelet && { kubelet }),
  };
}

async function wantsOf(context: ResizeContext, pod: PodDescription): Promise<KubeletWants | undefined> {
  context.kubelet.refresh();
  // Mostly there is no such record, and nothing more to read for it.
  if (context.kubelet.allocated(pod.metadata.uid) === undefined) return undefined;
  const foreseen = foreseenOf(context, pod, await readPod(context.tree, pod, []));
  return foreseen && { values: foreseen, decrease: context.decreaseHelp.reportOf(pod.metadata.uid) };
}

async function containersOf(context: ResizeContext, pod: PodDescription): Promise<PodView['containers']> {
  const views: PodView['containers'][number][] = [];
  const filter = { pod_sandbox_id: pod.sandboxId };
  const { containers } = await context.backend.runtime('ListContainers', { filter });
  for (const { id: containerId } of containers) {
    const container = await context.registry.describeContainer(containerId);
    if (container?.state !== ContainerState.RUNNING) continue;
    const cgroup = await containerCgroup(container, pod, context.procRoot);
    if (cgroup === undefined) continue;
    const shares = Number(container.resources?.cpu_shares ?? 0n);
    views.push({
      id: containerId,
      name: container.name,
      limits: await limitsOf(context, cgroup, shares === 0 ? undefined : shares),
    });
  }
  return views;
}

async function limitsOf(context: ResizeContext, cgroup: CgroupPath, shares: number | undefined): Promise<LiveLimits> {
  const { memoryMax, cpuMax, cpuWeight } = await context.tree.readLimits(cgroup);
  const current = context.tree.readMemoryCurrent(cgroup);
  return {
    memory: memoryMax,
    memoryUsed: current,
    cpu: cpuMax ?? NO_CPU_LIMIT,
    shares: shares === undefined ? undefined : cpuShares(shares),
    weight: cpuWeight,
  };
}

function volumesOf(context: ResizeContext, pod: PodDescription, podLimit: Limit<Bytes>): PodView['volumes'] {
  const volumes = readVolumes(context.volumes, pod);
  // So that what somebody else has made of them is told as it will be taken.
  meetVolumes(context, pod, volumes, podLimit);
  return volumes.map(({ name, size }) => {
    const { used } = context.volumes.measure({ podUid: pod.metadata.uid, name });
    return { name, size, used: bytes(used), policy: context.policies.policy(pod.sandboxId, name) };
  });
}
