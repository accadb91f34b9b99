import { isBestEffort, weightMatchesShares } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type CpuShares, type CpuWeight, cpuShares } from '../../core/quantities/index.ts';
import { milliCpuToShares, quotaToMilliCpu } from '../../kubelet/index.ts';
import { type ContainerLimits, type PodState, podCgroup } from '../../sandbox/index.ts';

/** The shares of a pod whose shares are the sum of its containers', before and after a resize. */
export interface DerivedShares {
  readonly now: CpuShares;
  readonly then: CpuShares;
}

/**
 * Returns the sum of the containers' shares and the overhead's when the pod's shares are that sum now: kubelet
 * pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod. The pod's weight in the kernel decides: kubelet may have changed it since the
 * pod was created. Undefined where the sum does not change, and for a BestEffort pod: kubelet keeps its minimum, since its QoS class
 * never changes (KEP-1287).
 */
export function derivedPodShares(
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
): DerivedShares | undefined {
  if (isBestEffort(podCgroup(pod)) || targets.every(({ shares }) => shares === undefined)) return undefined;
  const overhead = overheadShares(state.overhead.cpu);
  const sum = (of: (container: PodState['containers'][number]) => number): number =>
    state.containers.reduce((total, container) => total + of(container), overhead);
  const before = sum(({ shares }) => shares ?? 0);
  const now = matchingShares(pod, state.weight, before, state.containers.length + 1);
  const then = sum(({ id, shares }) => targets.find((target) => target.id === id)?.shares ?? shares ?? 0);
  return now === undefined || then === before ? undefined : { now, then: cpuShares(then) };
}

/**
 * Returns the pod's shares if they are this sum. kubelet sums up milliCPU before it converts them to shares, and rounds once: the
 * pod's shares may be more by one for each container.
 */
function matchingShares(
  pod: PodDescription,
  weight: CpuWeight | undefined,
  sum: number,
  rounding: number,
): CpuShares | undefined {
  if (weight === undefined) {
    const { cpuShares: known } = pod;
    return known !== undefined && Math.abs(sum - known) <= rounding ? cpuShares(known) : undefined;
  }
  const candidates = Array.from({ length: rounding + 1 }, (_, more) => cpuShares(sum + more));
  return candidates.find((shares) => weightMatchesShares(weight, shares));
}

/** kubelet pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go, convertOverheadToLinuxResources: requests and limits are equal. */
const overheadShares = ({ quota, period }: PodState['overhead']['cpu']): number =>
  quota === 'max' || quota === 0 ? 0 : milliCpuToShares(quotaToMilliCpu(quota, period));
