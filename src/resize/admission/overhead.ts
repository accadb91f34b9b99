import { MAX_CPU_PERIOD, MAX_CPU_QUOTA, NO_HUGE_PAGE_LIMIT } from '../../cgroups/index.ts';
import { invalidValue } from '../../core/errors/index.ts';
import { type CpuMax, microseconds } from '../../core/quantities/index.ts';
import { overheadQuota } from '../../kubelet/index.ts';
import type { LinuxContainerResources, Messages } from '../../runtime/index.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * Adds the limits of a pod's overhead to those of its resources, so that only the sum has to be a limit that the kernel accepts.
 * kubelet subtracts the overhead from the pod's limits (kubelet pkg/kubelet/kuberuntime/helpers_linux.go,
 * subtractOverheadFromResourceConfig), and reads a missing limit as -1: any negative limit of a resource with an overhead is no
 * limit. Likewise, the difference may be below the minimum of the kernel. A value that `resources` does not set stays unset.
 * Throws INVALID_VALUE when the sum is not an exact number or more than the kernel accepts.
 *
 * @param current the pod's cpu.max, whose period counts where the request has none
 */
export function addOverhead(request: Request, current: CpuMax): Request {
  const { resources, overhead } = request;
  if (resources === null || overhead === null) return request;
  const memory = 'memory.max' in resources.unified ? undefined : memorySum(resources, overhead);
  const quota = 'cpu.max' in resources.unified ? undefined : quotaSum(resources, overhead, current);
  return {
    ...request,
    resources: {
      ...resources,
      ...(memory !== undefined && { memory_limit_in_bytes: memory }),
      ...(quota !== undefined && { cpu_quota: quota }),
      memory_swap_limit_in_bytes: swapSum(resources, overhead),
      hugepage_limits: hugePageSums(resources, overhead),
    },
    overhead: {
      ...overhead,
      ...(memory !== undefined && { memory_limit_in_bytes: 0n }),
      ...(quota !== undefined && { cpu_quota: 0n }),
    },
  };
}

/** Undefined when one of the two is not set. */
function memorySum(resources: LinuxContainerResources, overhead: LinuxContainerResources): bigint | undefined {
  const { memory_limit_in_bytes: limit } = resources;
  const { memory_limit_in_bytes: extra } = overhead;
  if (limit === 0n || extra <= 0n) return undefined;
  if (limit < 0n) return -1n;
  const sum = limit + extra;
  // From 2^63 on the field has overflowed or means no limit: the parser of the field decides.
  if (sum <= BigInt(Number.MAX_SAFE_INTEGER) || limit > BigInt(Number.MAX_SAFE_INTEGER)) return sum;
  throw invalidValue(
    'memory_limit_in_bytes',
    `${limit} + ${extra}`,
    'the sum with the overhead is more than any node has',
  );
}

/**
 * CRI has the sum of memory and swap, and the memory limit of the pod's cgroup contains the overhead. A field that is not set, or that
 * removes the limit, stays.
 */
function swapSum(
  { memory_swap_limit_in_bytes: both, unified }: LinuxContainerResources,
  overhead: LinuxContainerResources,
): bigint {
  const max = BigInt(Number.MAX_SAFE_INTEGER);
  if (both <= 0n || both > max || 'memory.max' in unified) return both;
  const extra = [overhead.memory_limit_in_bytes, overhead.memory_swap_limit_in_bytes].filter((size) => size > 0n);
  const sum = both + extra.reduce((most, size) => (size > most ? size : most), 0n);
  if (sum <= max) return sum;
  throw invalidValue('memory_swap_limit_in_bytes', `${both} + ${sum - both}`, 'the sum with the overhead is too large');
}

/** A limit of the overhead counts where `resources` has a limit on pages of that size. */
function hugePageSums(
  resources: LinuxContainerResources,
  overhead: LinuxContainerResources,
): LinuxContainerResources['hugepage_limits'] {
  const extra = new Map(overhead.hugepage_limits.map(({ page_size, limit }) => [page_size, limit]));
  return resources.hugepage_limits.map(({ page_size, limit }) => {
    const sum = limit + (extra.get(page_size) ?? 0n);
    return { page_size, limit: sum > NO_HUGE_PAGE_LIMIT ? NO_HUGE_PAGE_LIMIT : sum };
  });
}

/** Undefined when one of the two is not set. */
function quotaSum(
  resources: LinuxContainerResources,
  overhead: LinuxContainerResources,
  current: CpuMax,
): bigint | undefined {
  const { cpu_quota: quota, cpu_period: period } = resources;
  if (quota === 0n || overhead.cpu_quota <= 0n) return undefined;
  if (quota < 0n) return -1n;
  // The parser of the field rejects such a period.
  if (period > BigInt(MAX_CPU_PERIOD)) return undefined;
  const rate = {
    quota: microseconds(Number(overhead.cpu_quota)),
    period: overhead.cpu_period > 0n ? microseconds(Number(overhead.cpu_period)) : current.period,
  };
  const sum = quota + BigInt(overheadQuota(rate, period > 0n ? microseconds(Number(period)) : current.period));
  if (sum <= BigInt(MAX_CPU_QUOTA) || quota > BigInt(MAX_CPU_QUOTA)) return sum;
  throw invalidValue(
    'cpu_quota',
    `${quota} + ${overhead.cpu_quota}`,
    'the sum with the overhead is more than the kernel accepts',
  );
}
