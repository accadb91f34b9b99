import { criOfCpuMax, criOfMemoryMax } from '../../cgroups/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import { type Backend, type PodDescription, isUnimplemented } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Log } from '../../observe/index.ts';
import type { Limits } from '../../sandbox/index.ts';

/**
 * Reports a pod's own values to a runtime that stores them (containerd 2.3 and later). KEP-1287: UpdatePodSandboxResources follows
 * the cgroup writes. Never rejects: the kernel has the values. kubelet up to 1.35 does the same; 1.36 calls before it writes, and
 * an error rejects the resize (kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction).
 */
export async function notifyRuntime(
  parts: { readonly backend: Backend; readonly log: Log },
  pod: PodDescription,
  { memory, cpu, shares }: Limits,
): Promise<void> {
  if (parts.backend.lacks('UpdatePodSandboxResources')) return;
  const max = cpu === undefined ? undefined : criOfCpuMax(cpu);
  const resources = {
    ...(memory !== undefined && { memory_limit_in_bytes: BigInt(withoutOverhead(memory, pod)) }),
    ...(max && { cpu_quota: BigInt(max.quota), cpu_period: BigInt(max.period) }),
    ...(shares !== undefined && { cpu_shares: BigInt(shares) }),
  };
  try {
    await parts.backend.runtime('UpdatePodSandboxResources', { pod_sandbox_id: pod.sandboxId, resources });
  } catch (error) {
    if (!isUnimplemented(error))
      parts.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'runtime not notified of new pod limits');
  }
}

/** CRI has the pod overhead in a field of its own. */
const withoutOverhead = (memory: Limit<Bytes>, { overhead }: PodDescription): number =>
  memory === 'max' ? criOfMemoryMax(memory) : Math.max(memory - Math.max(overhead.memoryBytes, 0), 1);
