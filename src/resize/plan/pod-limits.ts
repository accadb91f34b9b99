import { MAX_CPU_QUOTA, MIN_CPU_QUOTA } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../core/quantities/index.ts';
import { type ContainerStep, PAGE, type Step, compareCpu, compareLimits, sameCpu, sameMemory } from '../model/index.ts';
import type { ContainerLimits, LiveContainer, PodState } from '../../sandbox/index.ts';

/**
 * The pod limits that go with updates of its containers (docs/resize.md, "The pod limit when one container is
 * updated"): a tight limit stays tight, a looser one is raised only when the sum would pass it, `max` stays `max`. A limit
 * that is already under the sum was set so on purpose (Kubernetes' pod-level resources allow it) and is left alone. What
 * the containers give to each other changes no limit of the pod. Throws INVALID_VALUE when the sum is more than can be told
 * exactly, or than the kernel takes.
 */
export function podLimitsFor(
  state: PodState,
  targets: readonly ContainerLimits[],
): { memory?: Limit<Bytes>; cpu?: CpuMax } {
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
  // kubelet adds up milliCPU before it applies the kernel's least quota, the containers' quotas had it applied each.
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

/** How far a limit may stand from the sum and still be tight: what rounding makes of it. */
interface Tolerance {
  readonly under: number;
  readonly over: number;
}

/**
 * What becomes of a limit when the sum under it goes from `now` to `then`; undefined: it stays. It moves the way that the
 * sum moves, or not at all.
 */
function limitFor(limit: number, { under, over }: Tolerance, now: number, then: number): number | undefined {
  // Of no limit (Infinity) over a container without one, NaN: it is neither tight nor passed, and so stays.
  const slack = limit - now;
  if (slack < -under || then === now) return undefined;
  if (then > now) return then > limit ? then : undefined;
  return then < limit && slack <= over ? then : undefined;
}

/** Whether the pod's memory limit is the sum of its containers' limits and the overhead, so that nothing is under way. */
export function isMemoryTight(state: PodState): boolean {
  if (state.memory === 'max') return true;
  const slack = state.memory - wholePages(memorySum(state));
  return slack >= 0 && slack <= memoryTolerance(state).over;
}

/** Whether the containers' limits, as they are now, fit into what the pod's limit was before this step. */
export function fitsPreviousLimit(state: PodState, step: Extract<Step, { kind: 'pod-memory' | 'pod-cpu' }>): boolean {
  if (step.from === 'max') return true;
  if (step.kind === 'pod-memory') return memorySum(state) <= step.from + memoryTolerance(state).over;
  const { quota, period } = step.from;
  if (quota === 'max') return true;
  return cpuSum(state, period) <= quota + state.containers.length * (MIN_CPU_QUOTA + 1 + percentOf(state, period));
}

/** Whether one of these updates has left its container with more than it had, of what this step changes. */
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

/** What systemd may have added to each quota, in microseconds. */
const percentOf = ({ inPercents }: PodState, period: number): number => (inPercents ? period / 100 : 0);

/**
 * The kernel rounds each limit down to a page, the pod's only once: so a tight one may stand above by a page less than
 * there are addends (containers and overhead), and never under whole pages.
 */
const memoryTolerance = (state: PodState): Tolerance => ({ under: 0, over: state.containers.length * PAGE });

/** The limits of the pod's containers, or of `containers` instead, and its overhead, in bytes. */
const memorySum = ({ overhead, containers }: PodState, instead = containers): number =>
  instead.reduce((total, { memory }) => total + numberOf(memory), Number(overhead.memory));

const wholePages = (size: number): number => Math.floor(size / PAGE) * PAGE;

/** The same of CPU: the quota in periods of `period`, in whole microseconds. */
function cpuSum({ overhead, containers }: PodState, period: number, instead = containers): number {
  const quotas = instead.map(({ cpu }) => quotaIn(cpu, period));
  const sum = quotas.reduce((total, quota) => total + quota, quotaIn(overhead.cpu, period));
  // Thirds of a microsecond add up to a little more or less than a whole one.
  return Math.ceil(sum - 1e-6);
}

/** The quota that is this rate in periods of `period`; Infinity when there is no limit. */
const quotaIn = (cpu: CpuMax, period: number): number => (numberOf(cpu.quota) * period) / cpu.period;

/** Infinity when there is no limit. */
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
