import { MAX_CPU_QUOTA, MIN_CPU_QUOTA, wholePages } from '../../cgroups/values/controller-files.ts';
import { Reason, ShimError } from '../../core/errors.ts';
import { Code } from '../../core/grpc.ts';
import { type Bytes, bytes, type CpuMax, type Limit, microseconds } from '../../core/quantities/numbers.ts';
import { PAGE_SIZE } from '../../core/quantities/page-size.ts';
import { exactMilliCpu, exactQuota } from '../../kubelet/formulas.ts';
import type { Amounts } from '../pods/declared-pod.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { compareCpu, compareLimits, sameCpu, sameMemory } from './amounts.ts';
import { type CountedResource, type DeclaredSum, declaredSum, type Reading, readingOf } from './declared-sum.ts';
import type { ContainerStep, PodTarget, Step } from './step.ts';

/**
 * Returns the pod limits for updates of its containers (docs/resize.md, "The pod limit when one container is updated").
 * The sum includes all declared containers, running or not ({@link declaredSum}).
 *
 * - A tight limit stays tight (kubelet pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod: the sum of the
 *   containers).
 * - A looser limit is raised only when the sum would exceed it, and `max` stays `max`.
 * - A limit below the sum was set on purpose (KEP-2837, pod-level resources) and stays.
 * - A transfer between containers with the same sum changes no pod limit (KEP-1287).
 *
 * Throws INVALID_VALUE when the sum is not an exact number or more than the kernel accepts.
 * @param addsLimit whether a pod without a limit gets one once all its containers have one, as by kubelet
 */
export function podLimitsFor(state: PodState, targets: readonly ContainerLimits[], addsLimit = false): Limits {
  return podLimitsBetween(state, stateWith(state, targets), addsLimit);
}

/** Returns {@link podLimitsFor} for a pod whose containers change between two states, with the first's limits. */
export function podLimitsBetween(before: PodState, after: PodState, addsLimit = false): Limits {
  const memory = podMemoryFor(before, after, addsLimit);
  const cpu = podCpuFor(before, after, addsLimit);
  return { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
}

/** Returns the state with other limits of some containers, also of containers that do not run. */
export function stateWith(state: PodState, targets: readonly ContainerLimits[]): PodState {
  const targetOf = (container: string | undefined) => targets.find(({ id }) => id === container);
  const { declared } = state;
  return {
    ...state,
    containers: state.containers.map((container): LiveContainer => {
      const { memory = container.memory, cpu = container.cpu } = targetOf(container.id) ?? {};
      return { ...container, memory: sameMemory(container.memory, memory) ? container.memory : memory, cpu };
    }),
    ...(declared && {
      declared: {
        ...declared,
        containers: declared.containers.map((container) => {
          const target = targetOf(container.id);
          if (target === undefined || container.limits === undefined) return container;
          return { ...container, limits: updatedAmounts(container.limits, target) };
        }),
      },
    }),
  };
}

/** Returns declared limits with those of an update. `max` removes one. */
function updatedAmounts({ memory, milliCpu }: Amounts, target: ContainerLimits): Amounts {
  const size = target.memory ?? memory;
  const { quota, period } = target.cpu ?? {};
  const milli =
    quota === undefined || period === undefined || quota === 'max' ? undefined : exactMilliCpu(quota, period);
  const wanted = target.cpu === undefined ? milliCpu : milli;
  return {
    ...(size !== undefined && size !== 'max' && { memory: size }),
    ...(wanted !== undefined && { milliCpu: wanted }),
  };
}

function podMemoryFor(state: PodState, after: PodState, addsLimit: boolean): Limit<Bytes> | undefined {
  const limit = numberOf(state.memory);
  const resource = memoryOf(state);
  const reading = readingOf(state, resource, limit + PAGE_SIZE);
  const now = declaredSum(state, resource, reading);
  const then = declaredSum(after, resource, reading);
  const sums = { now: wholePages(now.sum, PAGE_SIZE), then: wholePages(then.sum, PAGE_SIZE) };
  const wanted = limitFor({ limit, ...sums, mayLower: mayLower(reading, now, then), addsLimit }, memoryTolerance(now));
  return wanted === undefined ? undefined : checkedLimit('memory.max', then.sum, Number.MAX_SAFE_INTEGER, bytes);
}

function podCpuFor(state: PodState, after: PodState, addsLimit: boolean): CpuMax | undefined {
  const { quota, period } = state.cpu;
  const limit = numberOf(quota);
  const resource = cpuOf(state, period);
  const reading = readingOf(state, resource, limit + cpuTolerance(state, state.containers.length, period).under);
  const now = declaredSum(state, resource, reading);
  const then = declaredSum(after, resource, reading);
  const amounts = { limit, now: quotaOf(now), then: quotaOf(then), mayLower: mayLower(reading, now, then), addsLimit };
  const wanted = limitFor(amounts, cpuTolerance(state, now.count, period));
  return wanted === undefined
    ? undefined
    : { quota: checkedLimit('cpu.max', wanted, MAX_CPU_QUOTA, microseconds), period };
}

/**
 * Whether the pod limit may be lowered with the sum. Not if a container without a limit was ignored, and not if a
 * sidecar loses its limit: kubelet counts it as 0 then, although it uses memory or CPU.
 */
const mayLower = ({ ignored }: Reading, now: DeclaredSum, then: DeclaredSum): boolean =>
  ignored.size === 0 && then.unlimited <= now.unlimited;

/** Maximum difference between a tight limit and the sum due to rounding. */
interface Tolerance {
  readonly under: number;
  readonly over: number;
}

interface LimitAndSums {
  /** The pod limit. */
  readonly limit: number;
  /** The sum before and after the change. */
  readonly now: number;
  readonly then: number;
  /** Whether the limit may go down with the sum. */
  readonly mayLower: boolean;
  /** Whether a pod without a limit gets one. */
  readonly addsLimit: boolean;
}

/**
 * Returns the pod limit when the sum of its containers changes from `now` to `then`. Undefined if it does not change.
 * The limit moves in the direction of the sum, or not at all.
 */
function limitFor(
  { limit, now, then, mayLower, addsLimit }: LimitAndSums,
  { under, over }: Tolerance,
): number | undefined {
  if (addsLimit && limit === Infinity && now === Infinity && then < Infinity) return then;
  // Infinity - Infinity is NaN: without limits on both sides the pod limit is neither tight nor exceeded, and stays.
  const slack = limit - now;
  if (slack < -under || then === now) return undefined;
  if (then > now) return then > limit ? then : undefined;
  return mayLower && then < limit && slack <= over ? then : undefined;
}

/** Whether the memory limit of the pod is its containers' sum plus overhead: no resize runs. `max` is tight. */
export function isMemoryTight(state: PodState): boolean {
  if (state.memory === 'max') return true;
  const sum = presentSum(state, memoryOf(state), state.memory + PAGE_SIZE);
  const slack = state.memory - wholePages(sum.sum, PAGE_SIZE);
  return slack >= 0 && slack <= memoryTolerance(sum).over;
}

/**
 * Whether the sum of the containers' present limits fits the pod limit from before this step (KEP-1287). The present
 * limit, which included all containers, shows how containers of unknown kind count.
 */
export function fitsPreviousLimit(state: PodState, step: PodLimitStep): boolean {
  if (step.kind === 'pod-memory') {
    const { sum, count } = presentSum(state, memoryOf(state), numberOf(state.memory) + PAGE_SIZE);
    return sum <= mostWithin(state, step, count);
  }
  const { period } = step.from;
  const limit = quotaIn(state.cpu, period) + state.containers.length * extraOf(state, step);
  const { sum, count } = presentSum(state, cpuOf(state, period), limit);
  return wholeMicroseconds(sum) <= mostWithin(state, step, count);
}

type PodLimitStep = Extract<Step, { kind: 'pod-memory' | 'pod-cpu' }>;

/** Returns the maximum sum of `count` containers in the pod limit before a step; Infinity without a limit. */
const mostWithin = (state: PodState, step: PodLimitStep, count: number): number =>
  numberOf(step.kind === 'pod-memory' ? step.from : step.from.quota) + count * extraOf(state, step);

/** Maximum excess of a limit over its part of a pod limit: rounding to a page, or a minimum quota plus rounding. */
const extraOf = (state: PodState, step: PodLimitStep): number =>
  step.kind === 'pod-memory' ? PAGE_SIZE : MIN_CPU_QUOTA + 1 + percentOf(state, step.from.period);

/** Whether the containers fit the present pod limits when a rollback of this update raises the container's limits. */
export function fitsRolledBack(state: PodState, { id, memory, cpu }: ContainerStep): boolean {
  const now = state.containers.find((container) => container.id === id);
  if (now === undefined) return true;
  const fits = (kind: 'pod-memory' | 'pod-cpu', limits: Limits): boolean => {
    const after = stateWith(state, [{ id, ...limits }]);
    return kind === 'pod-memory'
      ? fitsPreviousLimit(after, { kind, from: state.memory, to: state.memory })
      : fitsPreviousLimit(after, { kind, from: state.cpu, to: state.cpu });
  };
  const raisesMemory = memory !== undefined && mayRaiseSum(now.memory, memory.from);
  const raisesCpu = cpu !== undefined && mayRaiseCpuSum(now.cpu, cpu.from);
  return (
    (!raisesMemory || fits('pod-memory', { memory: memory.from })) && (!raisesCpu || fits('pod-cpu', { cpu: cpu.from }))
  );
}

/** Returns the sum of the present limits, with unknown containers counted so that it fits `limit` if possible. */
const presentSum = (state: PodState, resource: CountedResource, limit: number): DeclaredSum =>
  declaredSum(state, resource, readingOf(state, resource, limit));

/** Whether an update may have increased its container's part of the sum, for the resource of this step. */
export function hasRaisedContainer(
  state: PodState,
  updates: readonly ContainerStep[],
  kind: 'pod-memory' | 'pod-cpu',
): boolean {
  return updates.some(({ id, memory, cpu }) => {
    const now = state.containers.find((container) => container.id === id);
    if (now === undefined) return false;
    if (kind === 'pod-memory') return memory !== undefined && mayRaiseSum(memory.from, now.memory);
    return cpu !== undefined && mayRaiseCpuSum(cpu.from, now.cpu);
  });
}

/** Whether a memory limit change may raise the sum. A first limit may: a sidecar without a limit counts as 0. */
const mayRaiseSum = (from: Limit<Bytes>, to: Limit<Bytes>): boolean =>
  (from === 'max') !== (to === 'max') || compareLimits(to, from) > 0;

/** {@link mayRaiseSum} for CPU. */
const mayRaiseCpuSum = (from: CpuMax, to: CpuMax): boolean =>
  (from.quota === 'max') !== (to.quota === 'max') || (!sameCpu(from, to) && compareCpu(to, from) > 0);

/**
 * Whether new containers, which these updates do not include, have replaced updated ones and exceed the pod limit from
 * before this step. The containers of the pod's next sandbox have the new limits already.
 */
export function nextContainersExceed(state: PodState, updates: readonly ContainerStep[], step: PodLimitStep): boolean {
  if (updates.every(({ id }) => state.containers.some((container) => container.id === id))) return false;
  const sum = (limits: readonly number[]): number =>
    limits.filter((limit) => Number.isFinite(limit)).reduce((all, limit) => all + limit, 0);
  const count = state.containers.length;
  const limits =
    step.kind === 'pod-memory'
      ? state.containers.map(({ memory }) => numberOf(memory))
      : state.containers.map(({ cpu }) => quotaIn(cpu, step.from.period));
  return sum(limits) > mostWithin(state, step, count);
}

/** Maximum amount that systemd may have added to each quota, in microseconds. */
const percentOf = ({ inPercents }: PodState, period: number): number => (inPercents ? period / 100 : 0);

/**
 * Kernel cgroup-v2, memory.max: the kernel rounds each limit down to a page, and the pod's only once. A tight pod limit
 * may therefore exceed the sum by one page per container, and is never below the sum in whole pages.
 */
const memoryTolerance = ({ count }: DeclaredSum): Tolerance => ({ under: 0, over: count * PAGE_SIZE });

/**
 * kubelet pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod: kubelet sums up milliCPU before it applies the minimum
 * quota of the kernel, and each running container's quota has that minimum applied already.
 */
function cpuTolerance(state: PodState, count: number, period: number): Tolerance {
  const least = state.containers.filter((container) => container.cpu.quota === MIN_CPU_QUOTA).length * MIN_CPU_QUOTA;
  const percent = percentOf(state, period);
  return { under: least + count * (1 + percent), over: count + percent };
}

/** Memory limits in bytes. */
const memoryOf = ({ overhead }: PodState): CountedResource => ({
  live: ({ memory }) => numberOf(memory),
  declared: ({ memory }) => memory ?? Infinity,
  overhead: overhead.memory,
});

/** CPU limits as quotas per `period`, in microseconds. */
const cpuOf = ({ overhead }: PodState, period: number): CountedResource => ({
  live: ({ cpu }) => quotaIn(cpu, period),
  declared: ({ milliCpu }) => (milliCpu === undefined ? Infinity : exactQuota(milliCpu, period)),
  overhead: quotaIn(overhead.cpu, period),
});

/** Returns the quota of a sum. kubelet applies the kernel's minimum to the sum, too. */
const quotaOf = ({ sum }: DeclaredSum): number => Math.max(wholeMicroseconds(sum), MIN_CPU_QUOTA);

/** Rounds up with a tolerance for floating point: thirds of a microsecond do not add up to exactly one. */
const wholeMicroseconds = (quota: number): number => Math.ceil(quota - 1e-6);

/** Returns the quota of the same rate for another period; Infinity without a limit. */
const quotaIn = (cpu: CpuMax, period: number): number => (numberOf(cpu.quota) * period) / cpu.period;

/** Returns a limit as a number; Infinity without a limit. */
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

/**
 * Returns the state after unanswered updates have arrived, as far as they raise a limit. KEP-1287: the sum of the
 * containers' limits never exceeds the pod limit, so the pod limit must include them.
 */
export function ifTheyArrive(state: PodState, updates: readonly ContainerStep[]): PodState {
  return updates.reduce((before, { id, memory, cpu }) => {
    const now = before.containers.find((container) => container.id === id);
    if (now === undefined) return before;
    const raised = {
      ...(memory !== undefined && compareLimits(memory.to, now.memory) > 0 && { memory: memory.to }),
      ...(cpu !== undefined && compareCpu(cpu.to, now.cpu) > 0 && { cpu: cpu.to }),
    };
    return stateWith(before, [{ id, ...raised }]);
  }, state);
}

/** Updates of a transaction that the runtime has not answered. */
export interface LeftUpdates {
  /** All steps of the transaction. */
  readonly steps: readonly Step[];
  /** The updates at their highest limits. */
  readonly unanswered: readonly ContainerStep[];
  /** The limits of the containers once the updates are rolled back. */
  readonly settled: readonly ContainerLimits[];
}

/**
 * Returns the pod steps that a later transaction has to leave in the journal, so that rolling back {@link LeftUpdates}
 * results in the pod limits that the later transaction alone would have set. None for a pod limit that the later
 * transaction has not derived from the containers.
 *
 * @param state the pod before the later transaction
 */
export function podStepsLeft(
  state: PodState,
  target: Pick<PodTarget, 'memory' | 'cpu'> & { readonly containers: readonly ContainerLimits[] },
  { steps, unanswered, settled }: LeftUpdates,
): Step[] {
  const base = { ...stateWith(state, settled), ...podLimitsBefore(state, steps) };
  const derived = podLimitsFor(ifTheyArrive(state, unanswered), target.containers);
  const then = { memory: base.memory, cpu: base.cpu, ...podLimitsFor(base, target.containers) };
  const { memory = state.memory, cpu = state.cpu } = target;
  const ownsMemory = target.memory === undefined || isSame(sameMemory, target.memory, derived.memory);
  const ownsCpu = target.cpu === undefined || isSame(sameCpu, target.cpu, derived.cpu);
  return [
    ...(ownsMemory && !sameMemory(memory, then.memory)
      ? [{ kind: 'pod-memory', from: then.memory, to: memory } as const]
      : []),
    ...(ownsCpu && !sameCpu(cpu, then.cpu) ? [{ kind: 'pod-cpu', from: then.cpu, to: cpu } as const] : []),
  ];
}

const isSame = <Value>(same: (a: Value, b: Value) => boolean, a: Value, b: Value | undefined): boolean =>
  b !== undefined && same(a, b);

/** Returns the pod limits from before the first of these steps, unless another program has changed them since. */
function podLimitsBefore(
  { memory, cpu }: PodState,
  steps: readonly Step[],
): { readonly memory: Limit<Bytes>; readonly cpu: CpuMax } {
  const memorySteps = steps.filter((step) => step.kind === 'pod-memory');
  const cpuSteps = steps.filter((step) => step.kind === 'pod-cpu');
  const [lastMemory, lastCpu] = [memorySteps.at(-1), cpuSteps.at(-1)];
  return {
    memory: lastMemory && sameMemory(memory, lastMemory.to) ? (memorySteps[0]?.from ?? memory) : memory,
    cpu: lastCpu && sameCpu(cpu, lastCpu.to) ? (cpuSteps[0]?.from ?? cpu) : cpu,
  };
}
