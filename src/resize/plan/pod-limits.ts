import { MAX_CPU_QUOTA, MIN_CPU_QUOTA } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../core/quantities/index.ts';
import { type ContainerStep, PAGE, type Step, compareCpu, compareLimits, sameCpu, sameMemory } from '../model/index.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../../sandbox/index.ts';

/**
 * Returns the pod limits that go with updates of its containers (docs/resize.md, "The pod limit when one container is updated").
 *
 * - A tight limit stays tight (kubelet pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod: the sum of the containers).
 * - A looser limit is raised only when the sum would exceed it, and `max` stays `max`.
 * - A limit below the sum was set on purpose (KEP-2837, pod-level resources) and stays.
 * - A transfer between containers with the same sum changes no pod limit (KEP-1287).
 *
 * Throws INVALID_VALUE when the sum is not an exact number or more than the kernel accepts.
 */
export function podLimitsFor(state: PodState, targets: readonly ContainerLimits[]): Limits {
  const then = state.containers.map((container): LiveContainer => {
    const { memory = container.memory, cpu = container.cpu } = targets.find(({ id }) => id === container.id) ?? {};
    return { ...container, memory: sameMemory(container.memory, memory) ? container.memory : memory, cpu };
  });
  const memory = podMemoryFor(state, then);
  const cpu = podCpuFor(state, then);
  return { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
}

function podMemoryFor(state: PodState, then: readonly LiveContainer[]): Limit<Bytes> | undefined {
  const sum = memorySum(state, then);
  const limit = numberOf(state.memory);
  const wanted = limitFor(limit, memoryTolerance(state), wholePages(memorySum(state)), wholePages(sum));
  return wanted === undefined ? undefined : checkedLimit('memory.max', sum, Number.MAX_SAFE_INTEGER, bytes);
}

function podCpuFor(state: PodState, then: readonly LiveContainer[]): CpuMax | undefined {
  const { quota, period } = state.cpu;
  // kubelet pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod: kubelet sums up milliCPU before it applies the minimum quota of
  // the kernel, and each container's quota has that minimum applied already.
  const least = state.containers.filter((container) => container.cpu.quota === MIN_CPU_QUOTA).length * MIN_CPU_QUOTA;
  const rounding = state.containers.length;
  const percent = percentOf(state, period);
  const tolerance = { under: least + rounding * (1 + percent), over: rounding + percent };
  const wanted = limitFor(
    numberOf(quota),
    tolerance,
    cpuSum(state, period),
    Math.max(cpuSum(state, period, then), MIN_CPU_QUOTA),
  );
  return wanted === undefined
    ? undefined
    : { quota: checkedLimit('cpu.max', wanted, MAX_CPU_QUOTA, microseconds), period };
}

/** How far rounding may move a tight limit from the sum. */
interface Tolerance {
  readonly under: number;
  readonly over: number;
}

/**
 * Returns the pod limit when the sum of its containers goes from `now` to `then`. Undefined when it stays. The limit moves in the
 * direction of the sum, or not at all.
 */
function limitFor(limit: number, { under, over }: Tolerance, now: number, then: number): number | undefined {
  // Infinity - Infinity is NaN: without limits on both sides the pod limit is neither tight nor exceeded, and stays.
  const slack = limit - now;
  if (slack < -under || then === now) return undefined;
  if (then > now) return then > limit ? then : undefined;
  return then < limit && slack <= over ? then : undefined;
}

/**
 * Whether the pod's memory limit is the sum of its containers' limits and the overhead: no resize is under way then. `max` counts
 * as tight.
 */
export function isMemoryTight(state: PodState): boolean {
  if (state.memory === 'max') return true;
  const slack = state.memory - wholePages(memorySum(state));
  return slack >= 0 && slack <= memoryTolerance(state).over;
}

/** Whether the sum of the containers' present limits fits the pod limit from before this step (KEP-1287). */
export function fitsPreviousLimit(state: PodState, step: Extract<Step, { kind: 'pod-memory' | 'pod-cpu' }>): boolean {
  if (step.from === 'max') return true;
  if (step.kind === 'pod-memory') return memorySum(state) <= step.from + memoryTolerance(state).over;
  const { quota, period } = step.from;
  if (quota === 'max') return true;
  return cpuSum(state, period) <= quota + state.containers.length * (MIN_CPU_QUOTA + 1 + percentOf(state, period));
}

/** Whether one of these updates has left its container with a higher limit than before, for the resource of this step. */
export function hasRaisedContainer(
  state: PodState,
  updates: readonly ContainerStep[],
  kind: 'pod-memory' | 'pod-cpu',
): boolean {
  return updates.some(({ id, memory, cpu }) => {
    const now = state.containers.find((container) => container.id === id);
    if (now === undefined) return false;
    if (kind === 'pod-memory') return memory !== undefined && compareLimits(now.memory, memory.from) > 0;
    return cpu !== undefined && !sameCpu(now.cpu, cpu.from) && compareCpu(now.cpu, cpu.from) > 0;
  });
}

/** The most that systemd may have added to each quota, in microseconds. */
const percentOf = ({ inPercents }: PodState, period: number): number => (inPercents ? period / 100 : 0);

/**
 * Kernel cgroup-v2, memory.max: the kernel rounds each limit down to a page, and the pod's only once. A tight pod limit may thus
 * exceed the sum by one page per container, and is never below the sum in whole pages.
 */
const memoryTolerance = (state: PodState): Tolerance => ({ under: 0, over: state.containers.length * PAGE });

/** The sum of the memory limits of the pod's containers (or of `instead`) and the pod overhead, in bytes. */
const memorySum = ({ overhead, containers }: PodState, instead = containers): number =>
  instead.reduce((total, { memory }) => total + numberOf(memory), Number(overhead.memory));

const wholePages = (size: number): number => Math.floor(size / PAGE) * PAGE;

/**
 * The sum of the CPU limits of the pod's containers (or of `instead`) and the pod overhead: a quota per `period`, in whole
 * microseconds.
 */
function cpuSum({ overhead, containers }: PodState, period: number, instead = containers): number {
  const quotas = instead.map(({ cpu }) => quotaIn(cpu, period));
  const sum = quotas.reduce((total, quota) => total + quota, quotaIn(overhead.cpu, period));
  // Floating point: thirds of a microsecond do not add up to exactly one.
  return Math.ceil(sum - 1e-6);
}

/** The quota of this rate with another period; Infinity without a limit. */
const quotaIn = (cpu: CpuMax, period: number): number => (numberOf(cpu.quota) * period) / cpu.period;

/** Infinity without a limit. */
const numberOf = (limit: Limit<number>): number => (limit === 'max' ? Infinity : limit);

function checkedLimit<Unit extends number>(
  file: string,
  sum: number,
  most: number,
  unit: (value: number) => Unit,
): Limit<Unit> {
  if (sum === Infinity) return 'max';
  if (sum <= most) return unit(sum);
  const message = `${file}: the sum of the containers' limits is ${sum}, more than the maximum ${most}`;
  throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, { file, asked: String(sum) });
}
