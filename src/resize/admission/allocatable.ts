import { type CgroupPath, type CgroupTree, meminfoSize, procText } from '../../cgroups/index.ts';
import { type Bytes, bytes } from '../../core/quantities/index.ts';
import { quotaToMilliCpu } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type Amounts, type NodeAllocatable, podCgroup } from '../../sandbox/index.ts';

/** What all pods together may request, and the source of that figure. */
export interface Allocatable {
  readonly amount: number;
  readonly source: string;
}

/** The limit of a cgroup above a pod's. */
export interface LimitAbove extends Allocatable {
  readonly cgroup: CgroupPath;
}

export interface AllocatableParts {
  readonly tree: Pick<CgroupTree, 'readLimitsNow'>;
  /** The allocatable of the Node object, where the API server says it. */
  readonly allocatable: NodeAllocatable;
  /** Default: /proc. */
  readonly procRoot?: string;
}

/**
 * Returns the memory and the CPUs that all pods together may request; a resource is absent if nothing tells. The Node object has it.
 * Without that, it is what the node has. A finite limit of a cgroup above the pod's counts if it is less: kubelet limits the memory
 * of kubepods to what it reserves for pods (kubelet pkg/kubelet/cm/node_container_manager_linux.go, enforceNodeAllocatableCgroups).
 */
export function nodeAllocatable(
  parts: AllocatableParts,
  pod: PodDescription,
): { readonly memory?: Allocatable; readonly milliCpu?: Allocatable } {
  const inApi = parts.allocatable.amounts();
  const node = inApi ?? nodeSize(parts.procRoot);
  const source = inApi === undefined ? 'the node has no more' : "the node's allocatable";
  const above = limitsAbove(parts, pod);
  const memory = least(node.memory, source, above.memory);
  const milliCpu = least(node.milliCpu, source, above.milliCpu);
  return { ...(memory && { memory }), ...(milliCpu && { milliCpu }) };
}

/**
 * Returns what may be the node's memory for pods as kubelet counts it (GetNodeAllocatableAbsolute): the least first. kubelet limits the
 * memory of kubepods to that; the Node object has less, by the threshold of evictions.
 */
export function memorySizes(parts: AllocatableParts, pod: PodDescription): readonly Bytes[] {
  const above = limitsAbove(parts, pod)
    .memory.map(({ amount }) => amount)
    .sort((one, other) => one - other);
  const all = [...above, parts.allocatable.amounts()?.memory, nodeSize(parts.procRoot).memory];
  return all.filter((size) => size !== undefined).map(bytes);
}

const least = (amount: number | undefined, source: string, above: readonly Allocatable[]): Allocatable | undefined =>
  [...(amount === undefined ? [] : [{ amount, source }]), ...above].sort((one, other) => one.amount - other.amount)[0];

/**
 * Returns the finite limits of the cgroups above the pod's. Throws CGROUP_UNAVAILABLE when one cannot be read.
 * @param counts whether a cgroup counts; the others are not read
 */
export function limitsAbove(
  { tree }: Pick<AllocatableParts, 'tree'>,
  pod: PodDescription,
  counts: (cgroup: CgroupPath) => boolean = () => true,
): { readonly memory: readonly LimitAbove[]; readonly milliCpu: readonly LimitAbove[] } {
  const names = podCgroup(pod).split('/').slice(1, -1);
  const cgroups = names.map((_, index) => `/${names.slice(0, index + 1).join('/')}`).filter(counts);
  const limits = cgroups.map((cgroup) => ({
    cgroup,
    source: `cgroup ${cgroup} allows no more`,
    ...tree.readLimitsNow(cgroup),
  }));
  return {
    memory: limits.flatMap(({ cgroup, source, memoryMax }) =>
      memoryMax === 'max' ? [] : [{ cgroup, source, amount: memoryMax }],
    ),
    milliCpu: limits.flatMap(({ cgroup, source, cpuMax }) =>
      cpuMax === undefined || cpuMax.quota === 'max'
        ? []
        : [{ cgroup, source, amount: quotaToMilliCpu(cpuMax.quota, cpuMax.period) }],
    ),
  };
}

/**
 * Returns the node's memory and online CPUs. They are read from /proc: the process itself may be limited to a part of the CPUs
 * (systemd CPUAffinity=). A file that cannot be read tells nothing.
 */
export function nodeSize(procRoot = '/proc'): Amounts {
  const memory = meminfoSize(procRoot, 'MemTotal');
  // /proc/stat has a line for each online CPU (proc_stat(5)).
  const cpus = procText(procRoot, 'stat').match(/^cpu\d+ /gm)?.length ?? 0;
  return { ...(memory !== undefined && { memory: bytes(memory) }), ...(cpus > 0 && { milliCpu: cpus * 1000 }) };
}
