/**
 * With each update the runtime writes all values that it has stored for the container, which may be older than the kernel's
 * (kubernetes/kubernetes#138732), and a key of `unified` after the field for the same file. What an update of the shim's own must
 * contain for that reason.
 */
import {
  type CgroupPath,
  type CgroupTree,
  NO_HUGE_PAGE_LIMIT,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
} from '../../cgroups/index.ts';
import type { LinuxContainerResources, Partially } from '../../runtime/index.ts';
import { type Limits, SWAP_MAX, type Settings, readSettings } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

/** Limits that have a field of their own, with the key of `unified` for the same file. */
const MEMORY_MAX = 'memory.max';
export const CPU_MAX = 'cpu.max';
const PINNED = new Set([MEMORY_MAX, CPU_MAX, SWAP_MAX]);

/** Returns the kernel's content of each stored setting that differs from it: without it, the update would write the stored one. */
export function goingAlong(tree: CgroupTree, cgroup: CgroupPath, stored: Settings): Settings {
  const found = readSettings(
    tree,
    cgroup,
    Object.keys(stored).filter((file) => !PINNED.has(file)),
  );
  return Object.fromEntries(
    Object.entries(found).filter(([file, text]) => tree.holdsSetting(file, stored[file] ?? '', text) === false),
  );
}

/** Moves limits for which the runtime has stored a key of `unified` to the settings: it writes that key last. */
export function withPinned<Values extends Limits>(stored: Settings, { swap, ...limits }: Values): Values {
  const { memory, cpu } = limits;
  const settings = {
    ...limits.settings,
    ...(memory !== undefined && MEMORY_MAX in stored && { [MEMORY_MAX]: String(memory) }),
    ...(cpu !== undefined && CPU_MAX in stored && { [CPU_MAX]: `${cpu.quota} ${cpu.period}` }),
    ...(swap !== undefined && SWAP_MAX in stored && { [SWAP_MAX]: String(swap) }),
  };
  return {
    ...limits,
    ...(swap !== undefined && !(SWAP_MAX in stored) && { swap }),
    ...(Object.keys(settings).length > 0 && { settings }),
  } as Values;
}

/** Converts a step to a CRI message: an absent field keeps the value, -1 removes the limit. */
export function criResources({
  memory,
  cpu,
  shares,
  swap,
  settings = {},
}: ContainerStep): Partially<LinuxContainerResources> {
  const max = cpu === undefined ? undefined : criOfCpuMax(cpu.to);
  return {
    ...(memory && { memory_limit_in_bytes: BigInt(criOfMemoryMax(memory.to)) }),
    ...(max && { cpu_quota: BigInt(max.quota), cpu_period: BigInt(max.period) }),
    ...(shares && { cpu_shares: BigInt(shares.to) }),
    ...(memory && swap && criOfSwap(memory.to, swap.to)),
    ...criOfSettings(
      settings,
      memory?.to === 'max' && swap !== undefined && swap.to !== 'max' ? { [SWAP_MAX]: String(swap.to) } : {},
    ),
  };
}

/** Without a memory limit, CRI has no field for a swap limit. */
function criOfSwap(
  memory: NonNullable<Limits['memory']>,
  swap: NonNullable<Limits['swap']>,
): Partially<LinuxContainerResources> {
  return memory === 'max' ? {} : { memory_swap_limit_in_bytes: BigInt(criOfSwapMax(swap, memory)) };
}

function criOfSettings(
  settings: NonNullable<ContainerStep['settings']>,
  more: Settings,
): Partially<LinuxContainerResources> {
  const unified: Record<string, string> = { ...more };
  const huge: { page_size: string; limit: bigint }[] = [];
  for (const [file, { to }] of Object.entries(settings)) {
    const [, size] = /^hugetlb\.([1-9]\d*[KMGTP]?B)\.max$/.exec(file) ?? [];
    if (size !== undefined && /^(?:max|\d{1,19})$/.test(to))
      huge.push({ page_size: size, limit: to === 'max' ? NO_HUGE_PAGE_LIMIT : BigInt(to) });
    else if (!CPUSETS.has(file)) unified[file] = to;
  }
  const cpus = settings['cpuset.cpus']?.to;
  const mems = settings['cpuset.mems']?.to;
  return {
    ...(cpus !== undefined && { cpuset_cpus: cpus }),
    ...(mems !== undefined && { cpuset_mems: mems }),
    ...(huge.length > 0 && { hugepage_limits: huge }),
    ...(Object.keys(unified).length > 0 && { unified }),
  };
}

const CPUSETS = new Set(['cpuset.cpus', 'cpuset.mems']);
