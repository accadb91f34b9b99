import { formulasOf, weightOfShares } from '../cgroups/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import type { CpuShares, CpuWeight } from '../core/quantities/index.ts';

/**
 * Returns the weight of a pod's cgroup for these shares, by the formula that kubelet used for this pod. The pod's live weight
 * and the shares of its creation show which; otherwise it is the old formula, which kubelet uses for pods at least up to 1.37
 * (kubelet pkg/kubelet/cm/cgroup_manager_linux.go, getCPUWeight). Undefined without the cpu controller.
 */
export function podWeight(pod: PodDescription, live: CpuWeight | undefined, shares: CpuShares): CpuWeight | undefined {
  if (live === undefined) return undefined;
  const known = pod.cpuShares === undefined ? [] : formulasOf(live, pod.cpuShares);
  return weightOfShares(shares, known.length === 1 && known[0] === 'new' ? 'new' : 'old');
}
