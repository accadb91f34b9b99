/**
 * The runtime's update of a container: what its message must contain, and its verification.
 *
 * With each update the runtime writes all values that it has stored for the container, which may be older than the
 * kernel's (kubernetes/kubernetes#138732), and a key of `unified` after the field for the same file. So the shim's own
 * updates must contain these values.
 */
import {
  type CgroupPath,
  type CgroupTree,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  isCgroupVanished,
  NO_HUGE_PAGE_LIMIT,
} from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/index.ts';
import type { LinuxContainerResources, Partially, PodDescription } from '../../runtime/index.ts';
import { sameCpu } from '../plan/amounts.ts';
import type { Change, ContainerStep } from '../plan/step.ts';
import type { EffectiveLimits, Limits, Settings } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { readSettings, SWAP_MAX, storedValues } from '../pods/stored-limits.ts';

/** Keys of `unified` for limits that also have their own field. */
const MEMORY_MAX = 'memory.max';
export const CPU_MAX = 'cpu.max';
const PINNED = new Set([MEMORY_MAX, CPU_MAX, SWAP_MAX]);

/** Returns the kernel's values of settings that differ from the stored ones. An update would overwrite them. */
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

/** Moves limits to the settings if the runtime has stored a `unified` key for them, because it writes that key last. */
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

/** The kernel's values that differ from the request after a caller's update. */
export interface Deviation {
  /** The container's limits, if one of them differs. */
  readonly limits?: EffectiveLimits;
  /** The other files that differ. */
  readonly files: readonly string[];
}

/** A value of the update in the kernel: as requested, as it was, or chosen by a plugin of the runtime (NRI). */
type Found = 'new' | 'old' | 'other';

/**
 * Compares the kernel with a caller's update that the runtime reports as done. Returns the values that a plugin of the
 * runtime has changed. A container that has just ended does not deviate. Throws CGROUP_WRITE_FAILED when the kernel
 * still has an old value that the runtime has not stored: the pod limit must not follow such an update.
 */
export async function verifyUpdate(
  { tree, registry }: { readonly tree: CgroupTree; readonly registry: Registry },
  pod: PodDescription,
  cgroup: CgroupPath,
  asked: ContainerStep,
): Promise<Deviation> {
  try {
    const limits = limitsIn(tree, cgroup);
    const found = [...limitsFound(tree, cgroup, asked, limits), ...settingsFound(tree, cgroup, asked)];
    const old = found.filter(({ file, kind }) => kind === 'old' && !isIgnored(file, asked));
    // The update is answered. If the runtime cannot be asked now, its stored values count as unknown.
    const stored = old.length === 0 ? undefined : await registry.describeContainer(asked.id).catch(() => undefined);
    const fault = old.find(({ file }) => !isStored(tree, cgroup, stored?.resources, file));
    if (fault !== undefined) throw unchanged(pod, asked.id, `${cgroup}/${fault.file}`, fault.to, fault.has);
    const files = found.flatMap(({ file, kind }) => (kind === 'new' ? [] : [file]));
    const deviates = files.includes('memory.max') || files.includes('cpu.max');
    return { files, ...(deviates && { limits }) };
  } catch (error) {
    if (isCgroupVanished(error)) return { files: [] };
    throw error;
  }
}

/** Whether a file has a limit on huge pages. runc 1.1 to 1.3 ignores those in an update (update.go). */
export const isHugePages = (file: string): boolean => file.startsWith('hugetlb.');

/**
 * Whether a runtime may ignore a value without an error: runc ignores hugepage limits of a running container, and
 * containerd ignores the swap field if its own cgroup has no swap controller.
 */
const isIgnored = (file: string, { swap }: ContainerStep): boolean =>
  isHugePages(file) || (file === SWAP_MAX && swap !== undefined);

/**
 * KEP-1287 (actuating resizes): the runtime's answer decides. Returns whether the runtime has stored the kernel's value
 * of a file although another one was requested: a plugin (NRI) has chosen it. A runtime that did nothing has stored the
 * requested value. False if the runtime does not report.
 */
export function isStored(
  tree: CgroupTree,
  cgroup: CgroupPath,
  resources: LinuxContainerResources | undefined,
  file: string,
): boolean {
  const stored = storedValues(resources);
  if (stored === undefined) return false;
  const setting = stored.settings[file];
  // The runtime writes `unified` last.
  if (setting !== undefined) {
    const found = tree.readSetting(cgroup, file);
    return found !== undefined && tree.holdsSetting(file, setting, found) === true;
  }
  const { memory, cpu } = limitsIn(tree, cgroup);
  if (file === 'memory.max') return tree.holds(stored.memory, memory);
  if (file === 'cpu.max') return tree.holdsCpu(cgroup, stored.cpu, cpu);
  const swap = tree.readSwapMax(cgroup);
  return file === SWAP_MAX && stored.swap !== undefined && swap !== undefined && tree.holds(stored.swap, swap);
}

interface Finding {
  readonly file: string;
  readonly kind: Found;
  readonly to: string;
  readonly has: string;
}

const limitsIn = (tree: CgroupTree, cgroup: CgroupPath): EffectiveLimits => ({
  memory: tree.readMemoryMax(cgroup),
  cpu: tree.readCpuMax(cgroup) ?? NO_CPU_LIMIT,
});

function* limitsFound(
  tree: CgroupTree,
  cgroup: CgroupPath,
  { memory, cpu, swap }: ContainerStep,
  found: EffectiveLimits,
): Generator<Finding> {
  if (memory !== undefined) {
    const kind = kindOf(memory, (value) => tree.holds(value, found.memory));
    yield { file: 'memory.max', kind, to: String(memory.to), has: String(found.memory) };
  }
  if (cpu !== undefined) {
    const { quota } = found.cpu;
    // The runtime may choose another period.
    const isNew = quota === cpu.to.quota || tree.holdsCpu(cgroup, cpu.to, found.cpu);
    const kind = isNew ? 'new' : sameCpu(cpu.from, found.cpu) ? 'old' : 'other';
    yield { file: 'cpu.max', kind, to: String(cpu.to.quota), has: String(quota) };
  }
  const swapMax = swap === undefined ? undefined : tree.readSwapMax(cgroup);
  if (swap !== undefined && swapMax !== undefined) {
    const kind = kindOf(swap, (value) => tree.holds(value, swapMax));
    yield { file: SWAP_MAX, kind, to: String(swap.to), has: String(swapMax) };
  }
}

function* settingsFound(tree: CgroupTree, cgroup: CgroupPath, { settings = {} }: ContainerStep): Generator<Finding> {
  for (const [file, change] of Object.entries(settings)) {
    const found = tree.readSetting(cgroup, file);
    if (found === undefined) continue;
    const kind = kindOf(change, (value) => tree.holdsSetting(file, value, found));
    yield { file, kind, to: change.to, has: found };
  }
}

/** @param holds whether the kernel has a value; undefined if unknown */
function kindOf<Value>({ from, to }: Change<Value>, holds: (value: Value) => boolean | undefined): Found {
  if (holds(to) !== false) return 'new';
  return holds(from) === true ? 'old' : 'other';
}

function unchanged(pod: PodDescription, container: string, file: string, asked: string, found: string): ShimError {
  const message = `${file}: the runtime accepted ${asked}, but the kernel still has ${found}`;
  const context = { pod: pod.sandboxId, container, file, asked, found };
  return new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, context);
}
