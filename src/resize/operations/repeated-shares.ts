import { cpuSharesOfCri } from '../../cgroups/index.ts';
import type { Messages } from '../../runtime/index.ts';
import type { CpuWeight } from '../../core/quantities/index.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * A request without its shares (0 keeps) when they only repeat the weight that the pod has. Each of kubelet's calls carries all
 * values of the pod, the ones that it leaves alone as it reads them from the cgroup, and it makes shares of a weight by a
 * formula that rounds down as the way there did: 102 shares make weight 4, which reads as 80 shares, and those would make
 * weight 3. So each resize of memory would take something off the pod's CPU.
 */
export function dropRepeatedShares(request: Request, live: CpuWeight | undefined): Request {
  const { resources, overhead } = request;
  const asked = resources === null ? undefined : cpuSharesOfCri(resources.cpu_shares);
  if (resources === null || asked === undefined || live === undefined) return request;
  const extra = overhead === null ? undefined : cpuSharesOfCri(overhead.cpu_shares);
  // kubelet takes the overhead off, which is added again here: that rounds too.
  const rounding = extra === undefined ? 0 : 1;
  if (Math.abs(asked + (extra ?? 0) - sharesAsRead(live)) > rounding) return request;
  return { ...request, resources: { ...resources, cpu_shares: 0n } };
}

/** CPUWeightToCPUShares in kubelet's pkg/kubelet/cm/util. */
const sharesAsRead = (weight: CpuWeight): number => Math.floor(((weight - 1) * 262_142) / 9999) + 2;
