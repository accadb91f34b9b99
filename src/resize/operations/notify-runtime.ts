import { criOfCpuMax, criOfMemoryMax } from '../../cgroups/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import { type Backend, type PodDescription, isUnimplemented } from '../../runtime/index.ts';
import type { Bytes, CpuMax, CpuShares, Limit } from '../../core/quantities/index.ts';
import type { Log } from '../../observe/index.ts';

/**
 * Tells a runtime that keeps a pod's own values (containerd 2.3 and later) what they are now. Never rejects: the kernel has
 * them, and that is what counts; kubelet, too, only logs when this fails.
 */
export async function notifyRuntime(
  context: { readonly backend: Backend; readonly log: Log },
  pod: PodDescription,
  {
    memory,
    cpu,
    shares,
  }: {
    readonly memory: Limit<Bytes> | undefined;
    readonly cpu: CpuMax | undefined;
    readonly shares: CpuShares | undefined;
  },
): Promise<void> {
  if (context.backend.lacks('UpdatePodSandboxResources')) return;
  const max = cpu === undefined ? undefined : criOfCpuMax(cpu);
  const resources = {
    ...(memory !== undefined && { memory_limit_in_bytes: BigInt(withoutOverhead(memory, pod)) }),
    ...(max && { cpu_quota: BigInt(max.quota), cpu_period: BigInt(max.period) }),
    ...(shares !== undefined && { cpu_shares: BigInt(shares) }),
  };
  try {
    await context.backend.runtime('UpdatePodSandboxResources', { pod_sandbox_id: pod.sandboxId, resources });
  } catch (error) {
    if (!isUnimplemented(error))
      context.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'runtime not notified of new pod limits');
  }
}

/** CRI counts the pod's overhead apart. */
const withoutOverhead = (memory: Limit<Bytes>, { overhead }: PodDescription): number =>
  memory === 'max' ? criOfMemoryMax(memory) : Math.max(memory - Math.max(overhead.memoryBytes, 0), 1);
