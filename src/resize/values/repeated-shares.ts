import { cpuSharesOfCri } from '../../cgroups/index.ts';
import type { Messages } from '../../runtime/index.ts';
import type { CpuWeight } from '../../core/quantities/index.ts';
import { cpuWeightToShares } from '../../kubelet/index.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * Returns the request without its shares (0 keeps them) when they only repeat the pod's present weight. Each call of kubelet
 * carries all values of the pod. Values that kubelet does not change are read from the cgroup, and both conversions between
 * shares and weight round down: 102 shares are weight 4, weight 4 reads as 80 shares, and 80 shares are weight 3. Without this,
 * each memory resize would lower the pod's CPU weight.
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
