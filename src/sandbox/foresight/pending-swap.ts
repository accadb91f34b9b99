import { type CgroupPath, type CgroupTree, isCgroupVanished, type SwapLimits } from '../../cgroups/index.ts';
import { type Bytes, bytes, type Limit } from '../../core/index.ts';
import { type PodEntry, type SwapAmounts, swapAfterResize } from '../../kubelet/index.ts';
import { compareLimits } from '../plan/amounts.ts';

/**
 * Returns the swap limits that kubelet lowers with the admitted resize. kubelet derives them from requests and limits.
 * Omits swap limits that stay or rise.
 *
 * @param places the cgroups of the running containers, by name
 */
export function pendingSwapOf(
  tree: Pick<CgroupTree, 'readSwapMax'>,
  places: ReadonlyMap<string, CgroupPath>,
  { allocated, actuated }: { readonly allocated: PodEntry; readonly actuated: PodEntry | undefined },
): SwapLimits {
  const limits = new Map<CgroupPath, Limit<Bytes>>();
  for (const [name, cgroup] of places) {
    const [before, after] = [amountsIn(actuated, name), amountsIn(allocated, name)];
    // kubelet updates a container only if something differs.
    if (after === undefined || (before !== undefined && isSame(before, after))) continue;
    const now = swapMaxOf(tree, cgroup);
    if (now === undefined) continue;
    const then = swapAfterResize(now, before?.request, after);
    if (compareLimits(then, now) < 0) limits.set(cgroup, then);
  }
  return limits;
}

const isSame = (one: SwapAmounts, other: SwapAmounts): boolean =>
  one.request === other.request && one.limit === other.limit;

/** Returns a container's amounts in an entry. Undefined if the entry does not contain the container. */
function amountsIn(entry: PodEntry | undefined, name: string): SwapAmounts | undefined {
  if (entry === undefined) return undefined;
  const limits = entry.containers.get(name);
  if (limits === undefined) return undefined;
  const requests = entry.requests?.containers.get(name);
  return { request: requests && (requests.memory ?? bytes(0)), limit: limits.memory };
}

/** Returns a cgroup's memory.swap.max. Undefined if the container has ended, or without swap accounting. */
function swapMaxOf(tree: Pick<CgroupTree, 'readSwapMax'>, cgroup: CgroupPath): Limit<Bytes> | undefined {
  try {
    return tree.readSwapMax(cgroup);
  } catch (error) {
    if (isCgroupVanished(error)) return undefined;
    throw error;
  }
}
