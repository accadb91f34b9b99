import {
  isBestEffort,
  MIN_CPU_QUOTA,
  MIN_MEMORY_LIMIT,
  type SwapLimits,
  weightMatchesShares,
} from '../../cgroups/index.ts';
import {
  type Bytes,
  bytes,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  cpuShares,
  type Limit,
  microseconds,
} from '../../core/index.ts';
import { exactMilliCpu, type MilliCpu, milliCpuToShares, overheadQuota, quotaToMilliCpu } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { blockingUse } from '../admission/memory-in-use.ts';
import { hasLevel } from '../admission/pod-level.ts';
import { withSubject } from '../admission/validate.ts';
import type { Node } from '../node.ts';
import { sameMemory } from '../plan/amounts.ts';
import { ifTheyArrive, podLimitsFor } from '../plan/pod-limits.ts';
import type { DesiredPod } from '../plan/resize-request.ts';
import type { DeclaredContainer } from '../pods/declared-pod.ts';
import { podSubject } from '../pods/names.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { podCgroup } from '../pods/read-pod.ts';

/**
 * Returns the pod limits for updates of its containers, with room for unanswered earlier updates. A memory decrease
 * that the pod's usage blocks is omitted with a warning, since no caller asked for it (KEP-1287: a limit is not lowered
 * below usage). Throws INVALID_VALUE as {@link podLimitsFor}.
 *
 * @param options `swapAfter`: the limits on swap that the updates lower; `addsLimit`: whether the pod gets a limit once
 *   all its containers have one, as by kubelet
 */
export async function derivedPodLimits(
  node: Node,
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
  { swapAfter, addsLimit = false }: { readonly swapAfter?: SwapLimits | undefined; readonly addsLimit?: boolean } = {},
): Promise<Limits> {
  const atMost = ifTheyArrive(state, node.journal.unanswered.of(pod.sandboxId));
  const { text, ids } = podSubject(pod);
  const { memory, ...limits } = withSubject(text, ids, () => podLimitsFor(atMost, targets, addsLimit));
  if (memory === undefined) return limits;
  const change = { cgroup: podCgroup(pod), now: state.memory, wanted: memory, swapAfter };
  const use = await blockingUse(node.tree, change);
  if (use === undefined) return { ...limits, memory };
  node.log.warn(
    { pod: pod.sandboxId, asked: memory, unreclaimable: use.unreclaimable },
    'pod limit not lowered with its containers: memory in use cannot be reclaimed',
  );
  return limits;
}

/** The shares of a pod whose shares are the sum of its containers', before and after a resize. */
export interface DerivedShares {
  readonly now: CpuShares;
  readonly then: CpuShares;
}

/** A container in the sum of a pod's shares. */
interface CountedShares {
  /** Absent: the container has not been created. */
  readonly id?: string | undefined;
  readonly shares: number;
}

/**
 * Returns the sum of the containers' shares and the overhead's if the pod's shares are this sum now: kubelet
 * pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod. An ordinary init container counts with the sidecars before it,
 * if they have more together. The pod's weight in the kernel decides: kubelet may have changed it since
 * the pod was created. Undefined if the sum does not change, and for a BestEffort pod: kubelet keeps its minimum,
 * because its QoS class never changes (KEP-1287). kubelet's sum includes declared containers that do not run.
 * @param targets new shares, also of containers that do not run, for which the runtime stores them
 */
export function derivedPodShares(
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
): DerivedShares | undefined {
  if (isBestEffort(podCgroup(pod)) || targets.every(({ shares }) => shares === undefined)) return undefined;
  const sharesAfter = ({ id, shares }: CountedShares): number =>
    targets.find((target) => target.id === id)?.shares ?? shares;
  const inits = initShares(state);
  const isInit = (id: string): boolean => inits.some(([own]) => own.id === id);
  const running = state.containers.filter(({ id }) => !isInit(id)).map(({ id, shares = 0 }) => ({ id, shares }));
  for (const idle of idleShares(state)) {
    const sum = (of: (container: CountedShares) => number): number => {
      const totals = [[...running, ...idle], ...inits].map((together: readonly CountedShares[]) =>
        together.reduce((total, container) => total + of(container), 0),
      );
      return Math.max(...totals) + overheadShares(state.overhead.cpu);
    };
    const before = sum(({ shares }) => shares);
    const now = matchingShares(pod, state.weight, before, running.length + idle.length + 1);
    const then = sum(sharesAfter);
    if (now !== undefined) return then === before ? undefined : { now, then: cpuShares(then) };
  }
  return undefined;
}

/**
 * Returns the shares of the declared app containers and sidecars that do not run. A container that may be an ordinary
 * init container counts in the first result only: the pod's weight shows whether kubelet counts it.
 */
function idleShares({ declared, containers }: PodState): readonly (readonly CountedShares[])[] {
  const idle = (declared?.containers ?? []).filter(
    ({ id, kind, isUncounted }) =>
      kind !== 'init' && kind !== 'ephemeral' && isUncounted !== true && !containers.some((one) => one.id === id),
  );
  const certain = idle.filter(({ kind }) => kind !== 'unknown');
  const all = idle.map(declaredShares);
  return certain.length === idle.length ? [all] : [all, certain.map(declaredShares)];
}

/** Returns the shares of each ordinary init container, followed by those of the sidecars that start before it. */
function initShares({ declared, containers }: PodState): readonly (readonly [CountedShares, ...CountedShares[]])[] {
  const sharesNow = (container: DeclaredContainer): CountedShares => {
    const live = containers.find(({ id }) => id === container.id);
    return live === undefined ? declaredShares(container) : { id: live.id, shares: live.shares ?? 0 };
  };
  return (declared?.containers ?? []).flatMap((container, index, all) => {
    if (container.kind !== 'init') return [];
    const before = all.slice(0, index).filter(({ kind }) => kind === 'sidecar');
    return [[sharesNow(container), ...before.map(sharesNow)] as const];
  });
}

const declaredShares = ({ id, requests, shares }: DeclaredContainer): CountedShares => ({
  id,
  shares: requests === undefined ? (shares ?? 0) : milliCpuToShares(requests.milliCpu ?? 0),
});

/**
 * Returns the pod's shares if they are this sum. kubelet sums up milliCPU before it converts them to shares, and rounds
 * once: the pod's shares may be more by one for each container.
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

/** pkg/kubelet/kuberuntime/kuberuntime_sandbox_linux.go, convertOverheadToLinuxResources: requests equal limits. */
const overheadShares = ({ quota, period }: PodState['overhead']['cpu']): number =>
  quota === 'max' || quota === 0 ? 0 : milliCpuToShares(quotaToMilliCpu(quota, period));

/**
 * KEP-1287 with KEP-2837: adds the containers that inherit a change of the pod-level limit to a request. A container
 * without its own limit has the pod's limit less the overhead, and gets the new one when the pod's limit changes
 * (kubelet pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, getCPULimit and getMemoryLimit). A container that
 * was given another limit keeps it. Requires a source with the pod-level limit: otherwise this limit cannot be
 * distinguished from a sum of containers.
 */
export function withInheritedLimits(state: PodState, desired: DesiredPod): DesiredPod {
  const live = new Map(state.containers.map((container) => [container.id, container]));
  const inherited = (state.declared?.containers ?? []).flatMap((one): [string, Limits][] => {
    const container = one.id === undefined ? undefined : live.get(one.id);
    const goesAlong = container !== undefined && one.limits !== undefined && one.kind !== 'ephemeral' && !one.isFixed;
    if (!goesAlong) return [];
    const limits = inheritedBy(state, desired, one, container);
    return Object.keys(limits).length === 0 ? [] : [[one.name, { ...limits, ...desired.containers.get(one.name) }]];
  });
  return inherited.length === 0 ? desired : { ...desired, containers: new Map([...desired.containers, ...inherited]) };
}

function inheritedBy(
  state: PodState,
  { pod }: DesiredPod,
  { limits = {} }: DeclaredContainer,
  container: LiveContainer,
): Limits {
  const { limits: level = {} } = state.declared ?? {};
  const { overhead } = state;
  const isLevel = hasLevel(state);
  const memory = pod.memory !== undefined && limits.memory === undefined && isLevel;
  const cpu = pod.cpu !== undefined && limits.milliCpu === undefined && isLevel;
  return {
    ...(memory &&
      hasMemoryOf(state, level.memory, container) && { memory: memoryWithout(overhead.memory, pod.memory) }),
    ...(cpu && hasCpuOf(state, level.milliCpu, container) && { cpu: cpuWithout(overhead.cpu, pod.cpu) }),
  };
}

/** Also compares with the pod's present limit: an earlier ResizePod may have changed both from the declared value. */
const hasMemoryOf = (state: PodState, level: Limit<Bytes> = 'max', { memory }: LiveContainer): boolean =>
  sameMemory(memory, level) || sameMemory(memory, memoryWithout(state.overhead.memory, state.memory));

/** Tolerates rounding: systemd rounds the pod's quota up to whole percents, and kubelet the overhead's milliCPU. */
function hasCpuOf(state: PodState, level: MilliCpu = Infinity, { cpu }: LiveContainer): boolean {
  const milli = milliOf(cpu);
  const ofPod = milliOf(cpuWithout(state.overhead.cpu, state.cpu));
  const tolerance = 1 + (state.inPercents ? 10 : 0);
  return [level, ofPod].some((amount) => milli === amount || Math.abs(milli - amount) < tolerance);
}

const milliOf = ({ quota, period }: CpuMax): MilliCpu => (quota === 'max' ? Infinity : exactMilliCpu(quota, period));

const memoryWithout = (overhead: Bytes, limit: Limit<Bytes>): Limit<Bytes> =>
  limit === 'max' ? 'max' : bytes(Math.max(limit - overhead, MIN_MEMORY_LIMIT));

const cpuWithout = (overhead: PodState['overhead']['cpu'], { quota, period }: CpuMax): CpuMax => ({
  quota:
    quota === 'max' || overhead.quota === 'max'
      ? quota
      : microseconds(
          Math.max(quota - overheadQuota({ quota: overhead.quota, period: overhead.period }, period), MIN_CPU_QUOTA),
        ),
  period,
});
