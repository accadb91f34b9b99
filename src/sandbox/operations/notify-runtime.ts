import { criOfCpuMax, criOfMemoryMax, MIN_CPU_QUOTA, weightMatchesShares } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type CpuShares, cpuShares, type Limit, messageOf } from '../../core/index.ts';
import {
  cpuWeightToShares,
  type MilliCpu,
  milliCpuToShares,
  overheadQuota,
  quotaToMilliCpu,
  sharesToMilliCpu,
} from '../../kubelet/index.ts';
import {
  isUnimplemented,
  type LinuxContainerResources,
  type Partially,
  type PodDescription,
} from '../../runtime/index.ts';
import type { Node } from '../node.ts';
import type { PodState } from '../pods/pod-state.ts';
import { overheadOf } from '../pods/read-pod.ts';

type Resources = Partially<LinuxContainerResources>;

/**
 * Reports a pod's own values to a runtime that stores them (containerd 2.3 and later). KEP-1287:
 * UpdatePodSandboxResources follows the cgroup writes. Never rejects: the kernel has the values. kubelet up to 1.35
 * does the same; 1.36 calls before it writes, and an error rejects the resize (kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction).
 *
 * The runtime replaces all stored values, and NRI plugins get the request. So it contains all values of the pod, like
 * kubelet's request (pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateUpdatePodSandboxResourcesRequest).
 *
 * @param shares the pod's shares with those of the overhead, if they have changed
 */
export async function notifyRuntime(
  node: Node,
  pod: PodDescription,
  { memory, cpu, weight }: Pick<PodState, 'memory' | 'cpu' | 'weight'>,
  shares: CpuShares | undefined,
): Promise<void> {
  if (node.backend.lacks('UpdatePodSandboxResources')) return;
  const overhead = overheadResources(pod);
  const resources = {
    memory_limit_in_bytes: BigInt(withoutOverhead(memory, pod)),
    // Without the cpu controller, the pod has neither quota nor shares.
    ...(weight !== undefined && {
      ...quotaWithoutOverhead(cpu, pod),
      cpu_shares: BigInt(podShares(pod, weight, shares)),
    }),
  };
  try {
    await node.backend.runtime('UpdatePodSandboxResources', { pod_sandbox_id: pod.sandboxId, overhead, resources });
  } catch (error) {
    if (!isUnimplemented(error))
      node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'runtime not notified of new pod limits');
  }
}

/** Subtracts the overhead, which CRI has in its own field (kubelet: subtractOverheadFromResourceConfig). */
const withoutOverhead = (memory: Limit<Bytes>, { overhead }: PodDescription): number =>
  memory === 'max' ? criOfMemoryMax(memory) : Math.max(memory - Math.max(overhead.memoryBytes, 0), 1);

function quotaWithoutOverhead(cpu: CpuMax, pod: PodDescription): Resources {
  const { quota, period } = criOfCpuMax(cpu);
  const extra = overheadOf(pod).cpu;
  const less = extra.quota === 'max' ? 0 : overheadQuota({ quota: extra.quota, period: extra.period }, cpu.period);
  return {
    cpu_quota: BigInt(cpu.quota === 'max' ? quota : Math.max(quota - less, MIN_CPU_QUOTA)),
    cpu_period: BigInt(period),
  };
}

/**
 * Returns the pod's shares without those of the overhead. If the shares have not changed, the pod's weight shows
 * whether the known shares are still valid and whether they include the overhead: shares from the pod's creation do
 * not, shares from an update do.
 */
function podShares(
  pod: PodDescription,
  weight: NonNullable<PodState['weight']>,
  changed: CpuShares | undefined,
): CpuShares {
  const extra = overheadMilliCpu(pod);
  const known = pod.cpuShares;
  const less = (total: CpuShares): CpuShares =>
    extra === 0 ? total : milliCpuToShares(Math.max(sharesToMilliCpu(total) - extra, 0));
  if (changed !== undefined) return less(changed);
  if (known === undefined) return less(cpuShares(cpuWeightToShares(weight)));
  if (weightMatchesShares(weight, milliCpuToShares(sharesToMilliCpu(known) + extra))) return known;
  return less(weightMatchesShares(weight, known) ? known : cpuShares(cpuWeightToShares(weight)));
}

function overheadMilliCpu(pod: PodDescription): MilliCpu {
  const { quota, period } = overheadOf(pod).cpu;
  return quota === 'max' ? 0 : quotaToMilliCpu(quota, period);
}

/** pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go, convertOverheadToLinuxResources: empty if no overhead. */
function overheadResources(pod: PodDescription): Resources {
  const { memory, cpu } = overheadOf(pod);
  const milliCpu = overheadMilliCpu(pod);
  if (memory === 0 && milliCpu === 0) return {};
  const { quota, period } = criOfCpuMax(cpu);
  return {
    cpu_shares: BigInt(milliCpuToShares(milliCpu)),
    ...(milliCpu > 0 && { cpu_quota: BigInt(quota), cpu_period: BigInt(period) }),
    ...(memory > 0 && { memory_limit_in_bytes: BigInt(memory) }),
  };
}
