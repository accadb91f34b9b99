import {
  type CgroupPath,
  type CgroupTree,
  cpuSharesOfCri,
  isFileMissing,
  NO_HUGE_PAGE_LIMIT,
  restoringSetting,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import { type Bytes, type CpuWeight, invalidValue, type Limit } from '../../core/index.ts';
import { cpuWeightToShares } from '../../kubelet/index.ts';
import type { LinuxContainerResources, Messages, PodDescription } from '../../runtime/index.ts';
import { withSubject } from '../admission/validate.ts';
import type { UnifiedChange } from '../plan/step.ts';
import { podSubject } from '../pods/names.ts';
import { SWAP_MAX } from '../pods/stored-limits.ts';

/** Files with their own steps: a `unified` key for them is read together with the fields. */
const OWN_STEPS = new Set(['memory.max', 'cpu.max']);

/** A file that a request sets, with the field that sets it. */
interface Setting {
  readonly key: string;
  readonly to: string;
  readonly field: string;
  /** A kernel without this file has no such limit, or sets it through another file. */
  readonly isOptional?: boolean;
}

/**
 * KEP-1287, UpdatePodSandboxResources: returns what a request changes in the pod's cgroup in addition to memory, CPU
 * and shares: swap, cpusets, limits on huge pages, and `unified`, which overrides a field for the same file. Throws
 * INVALID_VALUE for a file that the pod's cgroup does not have: unlike for a container, no runtime decides about it.
 *
 * @param resources with the overhead
 * @param memory the pod's memory limit after the update
 */
export async function podSettingChanges(
  tree: CgroupTree,
  pod: PodDescription,
  cgroup: CgroupPath,
  resources: LinuxContainerResources | null,
  memory: Limit<Bytes>,
): Promise<UnifiedChange[]> {
  if (resources === null) return [];
  const { text, ids } = podSubject(pod);
  const changes: UnifiedChange[] = [];
  for (const setting of withSubject(text, ids, () => settingsOf(resources, memory))) {
    const { key, to } = setting;
    const found = await readFile(tree, pod, cgroup, setting);
    if (found === undefined) continue;
    const isThere = tree.holdsSetting(key, to, found) === true;
    changes.push({ key, from: isThere ? to : restoringSetting(key, to, found), to });
  }
  return changes;
}

function settingsOf(resources: LinuxContainerResources, memory: Limit<Bytes>): Setting[] {
  const { unified, cpuset_cpus: cpus, cpuset_mems: mems, memory_swap_limit_in_bytes } = resources;
  const swap = SWAP_MAX in unified ? undefined : swapMaxOfCri(memory_swap_limit_in_bytes, memory);
  const fields: Setting[] = [
    ...(swap === undefined
      ? []
      : [{ key: SWAP_MAX, to: String(swap), field: 'memory_swap_limit_in_bytes', isOptional: swap === 'max' }]),
    ...(cpus === '' ? [] : [{ key: 'cpuset.cpus', to: cpus, field: 'cpuset_cpus' }]),
    ...(mems === '' ? [] : [{ key: 'cpuset.mems', to: mems, field: 'cpuset_mems' }]),
    ...hugePageSettings(resources),
  ];
  return [
    ...fields.filter(({ key }) => !(key in unified)),
    ...Object.entries(unified)
      .filter(([key]) => !OWN_STEPS.has(key))
      .map(([key, to]) => ({ key, to, field: `unified[${JSON.stringify(key.slice(0, 80))}]` })),
  ];
}

/**
 * Returns the hugepage limits of a request. Like runc (opencontainers/cgroups fs2/hugetlb.go) and kubelet, sets the
 * same limit on reserved pages (Linux 5.7 and later), because a process reserves pages before it uses them.
 */
function hugePageSettings({ hugepage_limits }: LinuxContainerResources): Setting[] {
  // The last limit of a size counts, as in the runtimes.
  const limits = new Map(hugepage_limits.map(({ page_size, limit }) => [page_size, limit]));
  return [...limits].flatMap(([size, limit]): Setting[] => {
    const isNone = limit >= NO_HUGE_PAGE_LIMIT;
    const setting = { to: isNone ? 'max' : String(limit), field: `hugepage_limits[${JSON.stringify(size)}]` };
    return [
      { ...setting, key: `hugetlb.${size}.max`, isOptional: isNone },
      { ...setting, key: `hugetlb.${size}.rsvd.max`, isOptional: true },
    ];
  });
}

/** Reads a file. Returns undefined for an optional file that does not exist. Throws INVALID_VALUE for other files. */
async function readFile(
  tree: CgroupTree,
  pod: PodDescription,
  cgroup: CgroupPath,
  { key, to, field, isOptional }: Setting,
): Promise<string | undefined> {
  try {
    return await tree.readFile(cgroup, key);
  } catch (error) {
    if (!isFileMissing(error)) throw error;
    if (isOptional === true) return undefined;
    const { text, ids } = podSubject(pod);
    return withSubject(text, ids, () => {
      throw invalidValue(field, to, `there is no such file in ${cgroup}${reasonFor(field, key)}`);
    });
  }
}

/** Returns the reason of an error. Names the file, because a field does not. */
const reasonFor = (field: string, key: string): string =>
  field.startsWith('unified')
    ? ''
    : `: the kernel has no ${key}, or the cgroup above does not enable the controller ${key.split('.')[0]}`;

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * Returns the request without its shares (0 keeps them) when they only repeat the pod's present weight. Each call of
 * kubelet carries all values of the pod. Values that kubelet does not change are read from the cgroup, and both
 * conversions between shares and weight round down: 102 shares are weight 4, weight 4 reads as 80 shares, and 80 shares
 * are weight 3. Without this, each memory resize would lower the pod's CPU weight.
 */
export function dropRepeatedShares(request: Request, live: CpuWeight | undefined): Request {
  const { resources, overhead } = request;
  const asked = resources === null ? undefined : cpuSharesOfCri(resources.cpu_shares);
  if (resources === null || asked === undefined || live === undefined) return request;
  const extra = overhead === null ? undefined : cpuSharesOfCri(overhead.cpu_shares);
  // kubelet subtracts the overhead and the shim adds it again: that rounds once more.
  const rounding = extra === undefined ? 0 : 1;
  if (Math.abs(asked + (extra ?? 0) - cpuWeightToShares(live)) > rounding) return request;
  return { ...request, resources: { ...resources, cpu_shares: 0n } };
}
