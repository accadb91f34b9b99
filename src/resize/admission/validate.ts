import { DEFAULT_CPU_PERIOD, assertUnified, cpuSharesOfCri, swapMaxOfCri } from '../../cgroups/index.ts';
import { type ErrorContext, ShimError, invalidValue } from '../../core/errors/index.ts';
import type { LinuxContainerResources, Messages } from '../../runtime/index.ts';
import { type CpuMax, bytes } from '../../core/quantities/index.ts';
import type { Subject } from '../../sandbox/index.ts';
import { addOverhead } from './overhead.ts';
import { parseLimits } from './parse-limits.ts';

/**
 * Validates the values of a request, independently of the state of its pod. This happens before a request waits for the pod's
 * lock: a rejected request must not supersede a waiting one (see KeyedLock.run).
 */

/** Runtimes convert shares to a weight with a 64-bit multiplication by 9999. An overflow would give an arbitrary weight. */
const MOST_SHARES = 2n ** 64n / 9999n;
const NO_LIMIT: CpuMax = { quota: 'max', period: DEFAULT_CPU_PERIOD };
/** proc(5), oom_score_adj. */
const OOM_SCORES = { least: -1000n, most: 1000n };
/** The kernel accepts at most a page in one write. */
const LONGEST_LIST = 4096;
/** A list of CPUs or memory nodes, as the kernel reads it (bitmap_parselist): `0-3,8`, `0-15:2/4`, `all`, `N` for the last. */
const LIST =
  /^(?:all|(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)(?:,(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)*$/;

/** containerd's ids have at most 76 characters. */
const LONGEST_ID = 253;

/**
 * Throws INVALID_VALUE for an id that is too long. A runtime may quote an unknown id in its answer, and trailers of 100 KB stop
 * the grpc-js connection (seen with 1.14) that all resizes of the node share.
 */
export function assertId(field: string, id: string): void {
  if (id.length > LONGEST_ID) throw invalidValue(field, id, `an id has at most ${LONGEST_ID} characters`);
}

/** Throws INVALID_VALUE, with the field and the value, for the first invalid value. */
export function validateResources(resources: LinuxContainerResources): void {
  const { memory } = parseLimits(resources, NO_LIMIT);
  const { unified, hugepage_limits, memory_swap_limit_in_bytes: swap } = resources;
  // Without a memory limit in the request, the runtime counts swap from the limit that is set.
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
 * Throws INVALID_VALUE, with the pod, the field and the value, for the first invalid value of an UpdatePodSandboxResources
 * request. Limits are those of resources plus overhead.
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
