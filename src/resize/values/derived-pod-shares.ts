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

/** A container in the sum of a pod's shares. */
interface CountedShares {
  /** Absent: it has not been created. */
  readonly id?: string | undefined;
  readonly shares: number;
}

/**
 * Returns the sum of the containers' shares and the overhead's when the pod's shares are that sum now: kubelet
 * pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod. The pod's weight in the kernel decides: kubelet may have changed it since the
 * pod was created. Undefined where the sum does not change, and for a BestEffort pod: kubelet keeps its minimum, since its QoS class
 * never changes (KEP-1287). kubelet's sum has the declared containers, also those that do not run.
 * @param targets also of containers that do not run: shares that the runtime stores for them
 */
export function derivedPodShares(
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
): DerivedShares | undefined {
  if (isBestEffort(podCgroup(pod)) || targets.every(({ shares }) => shares === undefined)) return undefined;
  const sharesAfter = ({ id, shares }: CountedShares): number =>
    targets.find((target) => target.id === id)?.shares ?? shares;
  const running = state.containers.map(({ id, shares = 0 }): CountedShares => ({ id, shares }));
  for (const idle of idleShares(state)) {
    const sum = (of: (container: CountedShares) => number): number =>
      [...running, ...idle].reduce((total, container) => total + of(container), overheadShares(state.overhead.cpu));
    const before = sum(({ shares }) => shares);
    const now = matchingShares(pod, state.weight, before, running.length + idle.length + 1);
    const then = sum(sharesAfter);
    if (now !== undefined) return then === before ? undefined : { now, then: cpuShares(then) };
  }
  return undefined;
}

/**
 * Returns the shares of the declared app containers and sidecars that do not run. What may be an ordinary init container counts in the
 * first result only: the pod's weight tells whether kubelet counts it.
 */
function idleShares({ declared, containers }: PodState): readonly (readonly CountedShares[])[] {
  const idle = (declared?.containers ?? []).filter(
    ({ id, kind, isUncounted }) =>
      kind !== 'init' && kind !== 'ephemeral' && isUncounted !== true && !containers.some((one) => one.id === id),
  );
  const sharesIn = (some: typeof idle): CountedShares[] =>
    some.map(({ id, requests, shares = 0 }) => ({
      id,
      shares: requests === undefined ? shares : milliCpuToShares(requests.milliCpu ?? 0),
    }));
  const certain = idle.filter(({ kind }) => kind !== 'unknown');
  return certain.length === idle.length ? [sharesIn(idle)] : [sharesIn(idle), sharesIn(certain)];
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
