import {
  type CgroupLimits,
  type CgroupPath,
  type CgroupTree,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  sharesToReport,
} from '../../cgroups/index.ts';
import { type Bytes, type Limit, reportedShares } from '../../core/index.ts';
import type { ReportedResources } from '../../runtime/index.ts';

/**
 * Returns the fields of ContainerStatus in which the kernel differs from what the runtime reported. Undefined when they
 * agree. -1 is no limit. Throws CGROUP_UNAVAILABLE when the container's cgroup cannot be read (it may just have ended).
 */
export function kernelResources(
  tree: CgroupTree,
  cgroup: CgroupPath,
  reported: ReportedResources | undefined,
  limits = tree.readLimitsNow(cgroup),
): Partial<ReportedResources> | undefined {
  const changes: Changes = {};
  addCpu(changes, limits, reported);
  addWeight(changes, limits, reported);
  addMemory(changes, limits, () => tree.readSwapMax(cgroup), reported);
  for (const _ in changes) return changes;
  return undefined;
}

type Changes = { -readonly [Name in keyof ReportedResources]?: ReportedResources[Name] };

function addCpu(changes: Changes, { cpuMax }: CgroupLimits, reported: ReportedResources | undefined): void {
  if (cpuMax === undefined) return;
  const { quota, period } = criOfCpuMax(cpuMax);
  // 0 (never set) and -1 (removed) both mean no limit, and the period does not matter then.
  if (isSameReportedLimit(reported?.cpu_quota, quota) && (quota === -1 || reported?.cpu_period === period)) return;
  changes.cpu_quota = quota;
  changes.cpu_period = period;
}

/** Kernel cgroup-v2: the default of cpu.weight. */
const DEFAULT_WEIGHT = 100;

function addWeight(changes: Changes, { cpuWeight }: CgroupLimits, reported: ReportedResources | undefined): void {
  // 0: the cgroup is idle (cpu.idle), which shares cannot express.
  if (cpuWeight === undefined || cpuWeight === 0) return;
  const stored = reported?.cpu_shares ?? 0;
  if (stored === 0 && cpuWeight === DEFAULT_WEIGHT) return;
  const shares = sharesToReport(cpuWeight, reportedShares(stored), 'new');
  if (shares !== stored) changes.cpu_shares = shares;
}

function addMemory(
  changes: Changes,
  { memoryMax }: CgroupLimits,
  swapMax: () => Limit<Bytes> | undefined,
  reported: ReportedResources | undefined,
): void {
  const limit = criOfMemoryMax(memoryMax);
  if (!isSameReportedSize(reported?.memory_limit_in_bytes, limit)) changes.memory_limit_in_bytes = limit;
  // This runs for each ContainerStatus: memory.swap.max is read only for containers with a swap limit.
  if (reported === undefined || reported.memory_swap_limit_in_bytes === 0) return;
  const memorySwapMax = swapMax();
  if (memorySwapMax === undefined) return;
  const both = criOfSwapMax(memorySwapMax, memoryMax);
  if (!isSameReportedSize(reported.memory_swap_limit_in_bytes, both)) changes.memory_swap_limit_in_bytes = both;
}

const isSameReportedLimit = (reported: number | undefined, found: number): boolean =>
  found === -1 ? reported === undefined || reported <= 0 : reported === found;

/** The kernel rounds sizes down to a page. Within a page, the runtime's number is the requested one and stays. */
const LARGEST_PAGE = 64 * 1024;

function isSameReportedSize(reported: number | undefined, found: number): boolean {
  if (found === -1) return reported === undefined || reported <= 0;
  const difference = (reported ?? 0) - found;
  return difference >= 0 && difference < LARGEST_PAGE;
}
