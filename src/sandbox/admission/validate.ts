import {
  assertUnified,
  cpuSharesOfCri,
  DEFAULT_CPU_PERIOD,
  MAX_CPU_PERIOD,
  MAX_CPU_QUOTA,
  NO_HUGE_PAGE_LIMIT,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import { bytes, type CpuMax, type ErrorContext, invalidValue, microseconds, ShimError } from '../../core/index.ts';
import { overheadQuota } from '../../kubelet/index.ts';
import type { LinuxContainerResources, Messages } from '../../runtime/index.ts';
import type { Subject } from '../pods/names.ts';
import { parseLimits } from './parse-limits.ts';

/**
 * Validates the values of a request, independently of the state of its pod. This happens before a request waits for the
 * pod's lock: a rejected request must not supersede a waiting one (see KeyedLock.run).
 */

/** Runtimes compute a weight from shares with a 64-bit multiplication by 9999. An overflow makes it arbitrary. */
const MOST_SHARES = 2n ** 64n / 9999n;
const NO_LIMIT: CpuMax = { quota: 'max', period: DEFAULT_CPU_PERIOD };
/** Bounds of oom_score_adj (proc(5)). */
const OOM_SCORES = { least: -1000n, most: 1000n };
/** Maximum length of a CPU or memory node list: the kernel accepts at most a page in one write. */
const LONGEST_LIST = 4096;
/** CPUs or memory nodes as the kernel reads them (bitmap_parselist): `0-3,8`, `0-15:2/4`, `all`, `N` (last). */
const LIST =
  /^(?:all|(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)(?:,(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)*$/;

/** Maximum length of an id. containerd's ids have at most 76 characters. */
const LONGEST_ID = 253;

/**
 * Throws INVALID_VALUE for an id that is too long. A runtime may quote an unknown id in its answer, and trailers of 100
 * KB stop the grpc-js connection (seen with 1.14) that all resizes of the node share.
 */
export function assertId(field: string, id: string): void {
  if (id.length > LONGEST_ID) throw invalidValue(field, id, `an id has at most ${LONGEST_ID} characters`);
}

/** Throws INVALID_VALUE, with the field and the value, for the first invalid value. */
export function validateResources(resources: LinuxContainerResources): void {
  const { memory } = parseLimits(resources, NO_LIMIT);
  const { unified, hugepage_limits, memory_swap_limit_in_bytes: swap } = resources;
  // Without a memory limit in the request, the runtime uses the present limit to compute swap.
  swapMaxOfCri(swap, memory === undefined || memory === 'max' ? bytes(0) : memory);
  validateOtherFields(resources);
  for (const { page_size: size } of hugepage_limits) {
    // The page size becomes part of a file name.
    if (!/^[1-9][0-9]{0,5}[KMGTP]?B$/.test(size))
      throw invalidValue('hugepage_limits', size, 'expected a page size such as "2MB"');
  }
  for (const [key, value] of Object.entries(unified)) assertUnified(key, value);
}

/**
 * Throws INVALID_VALUE, with the pod, the field and the value, for the first invalid value of an
 * UpdatePodSandboxResources request. Limits are those of resources plus overhead.
 */
export function validatePodRequest(pod: Subject, request: Messages['UpdatePodSandboxResourcesRequest']): void {
  const { overhead } = request;
  if (overhead !== null) withSubject(`${pod.text}, overhead`, pod.ids, () => validateOverhead(overhead));
  withSubject(`${pod.text}, resources`, pod.ids, () => {
    const { resources } = addOverhead(request, NO_LIMIT);
    if (resources !== null) validateResources(resources);
  });
}

/** Validates a pod overhead. It is added to a limit, so memory of less than a page is valid. */
function validateOverhead(overhead: LinuxContainerResources): void {
  validateResources({ ...overhead, memory_limit_in_bytes: 0n });
  if (overhead.memory_limit_in_bytes < 0n) {
    const asked = String(overhead.memory_limit_in_bytes);
    throw invalidValue('memory_limit_in_bytes', asked, 'an overhead must not be negative');
  }
}

function validateOtherFields({ cpu_shares, oom_score_adj, cpuset_cpus, cpuset_mems }: LinuxContainerResources): void {
  cpuSharesOfCri(cpu_shares);
  if (cpu_shares > MOST_SHARES) throw invalidValue('cpu_shares', String(cpu_shares), `expected at most ${MOST_SHARES}`);
  if (oom_score_adj < OOM_SCORES.least || oom_score_adj > OOM_SCORES.most) {
    throw invalidValue('oom_score_adj', String(oom_score_adj), `expected ${OOM_SCORES.least} to ${OOM_SCORES.most}`);
  }
  for (const [field, list] of Object.entries({ cpuset_cpus, cpuset_mems })) {
    if (list === '' || (list.length <= LONGEST_LIST && LIST.test(list))) continue;
    throw invalidValue(field, list, `expected a list of numbers such as "0-3,8", at most ${LONGEST_LIST} characters`);
  }
}

/** Runs a check. Its error is prefixed with `subject`, the owner of the value: `container web of pod default/shop`. */
export function withSubject<Result>(subject: string, ids: ErrorContext, check: () => Result): Result {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof ShimError)) throw error;
    const { code, reason, message, context } = error;
    throw new ShimError(code, reason, `${subject}: ${message}`, { ...context, ...ids }, { cause: error });
  }
}

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * Adds the limits of a pod's overhead to those of its resources, so that only the sum has to be a limit that the kernel
 * accepts. kubelet subtracts the overhead from the pod's limits (kubelet pkg/kubelet/kuberuntime/helpers_linux.go,
 * subtractOverheadFromResourceConfig), and reads a missing limit as -1: a negative limit of a resource with an overhead
 * means no limit. Likewise, the difference may be below the minimum of the kernel. A value that `resources` does not
 * set stays unset. Throws INVALID_VALUE when the sum is not an exact number or more than the kernel accepts.
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

/** Returns the sum of the memory limits. Undefined if one of the two is not set. */
function memorySum(resources: LinuxContainerResources, overhead: LinuxContainerResources): bigint | undefined {
  const { memory_limit_in_bytes: limit } = resources;
  const { memory_limit_in_bytes: extra } = overhead;
  if (limit === 0n || extra <= 0n) return undefined;
  if (limit < 0n) return -1n;
  const sum = limit + extra;
  // From 2^63 on, the field has overflowed or means no limit: the parser of the field handles it.
  if (sum <= BigInt(Number.MAX_SAFE_INTEGER) || limit > BigInt(Number.MAX_SAFE_INTEGER)) return sum;
  throw invalidValue(
    'memory_limit_in_bytes',
    `${limit} + ${extra}`,
    'the sum with the overhead is more than any node has',
  );
}

/**
 * Returns the sum of the swap fields. In CRI, they contain memory plus swap, and the memory limit of the pod's cgroup
 * contains the overhead. An unset field, or one that removes the limit, is returned unchanged.
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

/** Adds the overhead's hugepage limits, if `resources` has a limit for the same page size. */
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

/** Returns the sum of the quotas. Undefined if one of the two is not set. */
function quotaSum(
  resources: LinuxContainerResources,
  overhead: LinuxContainerResources,
  current: CpuMax,
): bigint | undefined {
  const { cpu_quota: quota, cpu_period: period } = resources;
  if (quota === 0n || overhead.cpu_quota <= 0n) return undefined;
  if (quota < 0n) return -1n;
  // The parser of the field rejects an invalid period.
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
