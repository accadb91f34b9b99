import { DEFAULT_CPU_PERIOD, assertUnified, cpuSharesOfCri, swapMaxOfCri } from '../../cgroups/index.ts';
import { type ErrorContext, ShimError } from '../../core/errors/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import { type CpuMax, bytes } from '../../core/quantities/index.ts';
import { invalid, parseLimits } from './parse-limits.ts';

/**
 * Which values of a request have a meaning at all, whatever the state of what it is for. Looked at before a request waits
 * for anything: one that is refused must not take the place of one that waits (see {@link KeyedLock.run}).
 */

/** Runtimes make a weight of shares by a multiplication with 9999 in 64 bits, and what that loses would be any weight. */
const MOST_SHARES = 2n ** 64n / 9999n;
const NO_LIMIT: CpuMax = { quota: 'max', period: DEFAULT_CPU_PERIOD };
/** proc(5), oom_score_adj. */
const OOM_SCORES = { least: -1000n, most: 1000n };
/** The kernel takes at most a page in one write. */
const LONGEST_LIST = 4096;
/** A list of CPUs or memory nodes as the kernel reads it (bitmap_parselist): `0-3,8`, `0-15:2/4`, `all`, `N` for the last. */
const LIST =
  /^(?:all|(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)(?:,(?:N|\d{1,6})(?:-(?:N|\d{1,6})(?::\d{1,6}\/\d{1,6})?)?)*$/;

/** containerd's ids have 76 characters at most. */
const LONGEST_ID = 253;

/**
 * Throws INVALID_VALUE for an id that nothing can have. A runtime that does not find it may answer with it, and an answer of 100 KB
 * in the trailers stops grpc-js's connection (seen with 1.14), which all resizes of the node share.
 */
export function assertId(field: string, id: string): void {
  if (id.length > LONGEST_ID) throw invalid(field, id, `an id has at most ${LONGEST_ID} characters`);
}

/** Throws INVALID_VALUE, with the field and the value, for the first value that has none. */
export function validateResources(resources: LinuxContainerResources): void {
  const { memory } = parseLimits(resources, NO_LIMIT);
  const { unified, hugepage_limits, memory_swap_limit_in_bytes: swap } = resources;
  // Without a limit beside it the runtime counts it from the one that is set.
  swapMaxOfCri(swap, memory === undefined || memory === 'max' ? bytes(0) : memory);
  validateOtherFields(resources);
  for (const { page_size: size } of hugepage_limits) {
    // It becomes part of a file's name.
    if (!/^[1-9][0-9]{0,5}[KMGTP]?B$/.test(size))
      throw invalid('hugepage_limits', size, 'not a size of pages, as in "2MB"');
  }
  for (const [key, value] of Object.entries(unified)) assertUnified(key, value);
}

/** The same of an overhead, which is added to a limit: memory under a page has a meaning there. */
export function validateOverhead(overhead: LinuxContainerResources): void {
  validateResources({ ...overhead, memory_limit_in_bytes: 0n });
  if (overhead.memory_limit_in_bytes < 0n) {
    const asked = String(overhead.memory_limit_in_bytes);
    throw invalid('memory_limit_in_bytes', asked, 'an overhead is not negative');
  }
}

function validateOtherFields({ cpu_shares, oom_score_adj, cpuset_cpus, cpuset_mems }: LinuxContainerResources): void {
  cpuSharesOfCri(cpu_shares);
  if (cpu_shares > MOST_SHARES) throw invalid('cpu_shares', String(cpu_shares), `at most ${MOST_SHARES} can be told`);
  if (oom_score_adj < OOM_SCORES.least || oom_score_adj > OOM_SCORES.most) {
    throw invalid('oom_score_adj', String(oom_score_adj), `a score is ${OOM_SCORES.least} to ${OOM_SCORES.most}`);
  }
  for (const [field, list] of Object.entries({ cpuset_cpus, cpuset_mems })) {
    if (list === '' || (list.length <= LONGEST_LIST && LIST.test(list))) continue;
    throw invalid(field, list, `not a list of numbers, as in "0-3,8", of at most ${LONGEST_LIST} characters`);
  }
}

/** Runs a check; its refusal says as well whose value it is: `container web of pod default/shop`. */
export function withSubject<Result>(whose: string, ids: ErrorContext, check: () => Result): Result {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof ShimError)) throw error;
    const { code, reason, message, context } = error;
    throw new ShimError(code, reason, `${whose}: ${message}`, { ...context, ...ids }, { cause: error });
  }
}
