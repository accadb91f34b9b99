import { MIN_CPU_QUOTA, MIN_MEMORY_LIMIT } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../core/quantities/index.ts';
import { type MilliCpu, exactMilliCpu, overheadQuota } from '../../kubelet/index.ts';
import type { DeclaredContainer, Limits, LiveContainer, PodState } from '../../sandbox/index.ts';
import { type DesiredPod, sameMemory } from '../model/index.ts';

/**
 * KEP-1287 with KEP-2837: returns a request with the containers that go along with a change of the pod-level limit. A
 * container without a limit of its own has that of the pod, without the overhead, and gets the new one when it changes
 * (kubelet pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, getCPULimit and getMemoryLimit). One that somebody
 * has given another limit keeps it. Only a source that knows the pod-level limit tells it from a sum of containers.
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
  const memory = pod.memory !== undefined && limits.memory === undefined && level.memory !== undefined;
  const cpu = pod.cpu !== undefined && limits.milliCpu === undefined && level.milliCpu !== undefined;
  return {
    ...(memory &&
      hasMemoryOf(state, level.memory, container) && { memory: memoryWithout(overhead.memory, pod.memory) }),
    ...(cpu && hasCpuOf(state, level.milliCpu, container) && { cpu: cpuWithout(overhead.cpu, pod.cpu) }),
  };
}

/** An earlier ResizePod may have changed the pod and its containers: then both differ from what is declared. */
const hasMemoryOf = (state: PodState, level: Bytes, { memory }: LiveContainer): boolean =>
  sameMemory(memory, level) || sameMemory(memory, memoryWithout(state.overhead.memory, state.memory));

/** systemd rounds the pod's quota up to whole percents of a CPU, and kubelet the milliCPU of the overhead. */
function hasCpuOf(state: PodState, level: MilliCpu, { cpu }: LiveContainer): boolean {
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
