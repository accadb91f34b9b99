import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../units/index.ts';
import type { Change, ContainerState, ContainerStep, ContainerWish, PodState, PodTarget, Step } from './state.ts';

/**
 * From a pod's live values and the wanted ones to ordered steps. Pure: no clock, no file, no call; so every rule of
 * order can be proved by itself.
 */

const PAGE = 4096;
/** The least that cpu.max takes as a quota; kubelet and the runtimes raise smaller ones to it. */
const MIN_QUOTA = 1000;

/**
 * The steps from `state` to `target`: volumes that shrink, what the pod's cgroup gains, the containers' updates, what
 * the pod's cgroup loses, volumes that grow. So the sum of the containers' limits stays within the pod's at every instant, and a
 * volume is never larger than a limit that it was smaller than before.
 */
export function plan(state: PodState, target: PodTarget): Step[] {
  const shrink: Step[] = [];
  const grow: Step[] = [];
  for (const { name, size } of state.volumes) {
    const to = target.volumes.get(name);
    if (to === undefined || to === size) continue;
    (to < size ? shrink : grow).push({ kind: 'volume', volume: name, from: size, to });
  }
  const before: Step[] = [];
  const after: Step[] = [];
  const { memory, cpu, weight } = target;
  if (memory !== undefined && memory !== state.memory) {
    const raise = compareLimits(memory, state.memory) > 0;
    (raise ? before : after).push({ kind: 'pod-memory', from: state.memory, to: memory });
  }
  if (cpu !== undefined && !isSameCpu(cpu, state.cpu)) {
    const raise = compareCpu(cpu, state.cpu) >= 0;
    (raise ? before : after).push({ kind: 'pod-cpu', from: state.cpu, to: cpu });
  }
  if (weight !== undefined && state.weight !== undefined && weight !== state.weight)
    before.push({ kind: 'pod-weight', from: state.weight, to: weight });
  for (const { key, from, to } of target.unified ?? []) {
    if (to !== from) before.push({ kind: 'pod-unified', key, from, to });
  }
  const calls: Step[] = target.call === 'none' ? [] : [{ kind: 'runtime' }];
  const containers = containerSteps(state, target.containers ?? []);
  // A container's new limit belongs between what the pod gains and what it loses. The pod's own call only tells the
  // runtime what was written, so it comes last: an error before it has told nobody.
  const cgroups =
    target.call === 'container'
      ? [...before, ...containers, ...calls, ...after]
      : [...before, ...containers, ...after, ...calls];
  return [...shrink, ...cgroups, ...grow];
}

/**
 * What each container loses, then what each gains: so their sum is never above both what it was and what it will be. One
 * update for a container, or two when its memory and its CPU go opposite ways.
 */
function containerSteps(state: PodState, wishes: readonly ContainerWish[]): Step[] {
  const lowered: Step[] = [];
  const raised: Step[] = [];
  for (const wish of wishes) {
    const now = state.containers.find(({ id }) => id === wish.id);
    if (now === undefined) continue;
    const memory = changeOf(now.memory, wish.memory, (a, b) => a === b);
    const cpu = changeOf(now.cpu, wish.cpu, isSameCpu);
    const shares = now.shares === undefined ? undefined : changeOf(now.shares, wish.shares, (a, b) => a === b);
    const memoryFalls = memory !== undefined && compareLimits(memory.to, memory.from) < 0;
    const cpuFalls = cpu !== undefined && compareCpu(cpu.to, cpu.from) < 0;
    const down = { ...(memoryFalls && { memory }), ...(cpuFalls && { cpu }) };
    const up = { ...(!memoryFalls && memory && { memory }), ...(!cpuFalls && cpu && { cpu }) };
    const [falls, rises] = [Object.keys(down).length > 0, Object.keys(up).length > 0];
    // Shares take part in no rule: they go with an update that is made anyway.
    const extra = shares === undefined ? {} : { shares };
    if (falls) lowered.push({ kind: 'container', id: wish.id, ...down, ...(rises ? {} : extra) });
    if (rises || (!falls && shares !== undefined)) raised.push({ kind: 'container', id: wish.id, ...up, ...extra });
  }
  return [...lowered, ...raised];
}

/** One update that takes a container from one set of limits to another, whatever goes which way. Undefined: nothing to do. */
export function containerChanges(from: ContainerState, to: ContainerState): ContainerStep | undefined {
  const memory = changeOf(from.memory, to.memory, (a, b) => a === b);
  const cpu = changeOf(from.cpu, to.cpu, isSameCpu);
  if (memory === undefined && cpu === undefined) return undefined;
  return { kind: 'container', id: to.id, ...(memory && { memory }), ...(cpu && { cpu }) };
}

function changeOf<Value>(
  from: Value,
  to: Value | undefined,
  same: (a: Value, b: Value) => boolean,
): Change<Value> | undefined {
  return to === undefined || same(from, to) ? undefined : { from, to };
}

/**
 * The pod limits that go with updates of its containers (docs/resize.md, "The pod limit when one container is
 * updated"): a tight limit stays tight, a looser one is raised only when the sum would pass it, `max` stays `max`. A limit
 * that is already under the sum was set so on purpose (Kubernetes' pod-level resources allow it) and is left alone.
 */
export function podLimitsFor(
  state: PodState,
  wishes: readonly ContainerWish[],
): { memory?: Limit<Bytes>; cpu?: CpuMax } {
  const then = state.containers.map((container) => {
    const { memory = container.memory, cpu = container.cpu } = wishes.find(({ id }) => id === container.id) ?? {};
    return { ...container, memory, cpu };
  });
  const memory = wishes.some((wish) => wish.memory !== undefined) ? podMemoryFor(state, then) : undefined;
  const cpu = wishes.some((wish) => wish.cpu !== undefined) ? podCpuFor(state, then) : undefined;
  return { ...(memory === undefined ? {} : { memory }), ...(cpu === undefined ? {} : { cpu }) };
}

function podMemoryFor(state: PodState, then: readonly ContainerState[]): Limit<Bytes> | undefined {
  if (state.memory === 'max') return undefined;
  const sumNow = memorySum(state.containers, state.overhead.memory);
  const sumThen = memorySum(then, state.overhead.memory);
  // The kernel rounds each limit down to a page, so a tight pod limit may stand up to a page for each container above.
  const slack = state.memory - sumNow;
  const tight = slack >= 0 && slack < slackOf(state);
  if (tight || (slack >= 0 && sumThen > state.memory)) return finiteOrMax(sumThen, bytes);
  return undefined;
}

function podCpuFor(state: PodState, then: readonly ContainerState[]): CpuMax | undefined {
  if (state.cpu.quota === 'max') return undefined;
  const { period } = state.cpu;
  const overhead = quotaIn(state.overhead.cpu, period);
  const sum = (containers: readonly ContainerState[]): number =>
    containers.reduce((total, { cpu }) => total + quotaIn(cpu, period), overhead);
  const sumNow = sum(state.containers);
  const sumThen = sum(then);
  const slack = state.cpu.quota - sumNow;
  // kubelet adds up milliCPU before it applies the kernel's least quota, the containers' quotas had it applied each.
  const least = state.containers.filter(({ cpu }) => cpu.quota === MIN_QUOTA).length * MIN_QUOTA;
  const rounding = state.containers.length;
  const tight = slack <= rounding && slack >= -(least + rounding);
  if (tight || (slack >= 0 && sumThen > state.cpu.quota)) {
    return { quota: finiteOrMax(Math.max(Math.ceil(sumThen), MIN_QUOTA), microseconds), period };
  }
  return undefined;
}

/** Whether the pod's memory limit is the sum of its containers' limits and the overhead, so that nothing is under way. */
export function isMemoryTight(state: PodState): boolean {
  if (state.memory === 'max') return true;
  const slack = state.memory - memorySum(state.containers, state.overhead.memory);
  return slack >= 0 && slack < slackOf(state);
}

/**
 * Whether the containers' limits, as they are now, fit into what the pod's limit was before this step. A sum that passed
 * it from the start does not count against it.
 */
export function isWithin(state: PodState, step: Extract<Step, { kind: 'pod-memory' | 'pod-cpu' }>): boolean {
  if (step.from === 'max') return true;
  if (step.kind === 'pod-memory')
    return memorySum(state.containers, state.overhead.memory) <= step.from + slackOf(state);
  const { quota, period } = step.from;
  if (quota === 'max') return true;
  const sum = state.containers.reduce(
    (total, { cpu }) => total + quotaIn(cpu, period),
    quotaIn(state.overhead.cpu, period),
  );
  return sum <= quota + state.containers.length * (MIN_QUOTA + 1);
}

/** By how much rounding to pages may make a tight pod limit and the sum of its containers' limits differ, in bytes. */
const slackOf = (state: PodState): number => (state.containers.length + 1) * PAGE;

const memorySum = (containers: readonly ContainerState[], overhead: number): number =>
  containers.reduce((total, { memory }) => total + (memory === 'max' ? Infinity : memory), overhead);

/** The quota that is this rate in periods of `period`; Infinity when there is no limit. */
const quotaIn = (cpu: CpuMax, period: number): number =>
  cpu.quota === 'max' ? Infinity : (cpu.quota * period) / cpu.period;

const finiteOrMax = <Unit extends number>(value: number, unit: (value: number) => Unit): Limit<Unit> =>
  Number.isFinite(value) ? unit(value) : 'max';

/** Negative, zero or positive as `a` is lower than, equal to or higher than `b`. */
export function compareLimits(a: Limit<Bytes>, b: Limit<Bytes>): number {
  if (a === b) return 0;
  if (a === 'max') return 1;
  if (b === 'max') return -1;
  return a - b;
}

export const isSameCpu = (a: CpuMax, b: CpuMax): boolean =>
  a.quota === b.quota && (a.quota === 'max' || a.period === b.period);

/** Negative, zero or positive as the rate of `a` is lower than, equal to or higher than that of `b`. */
export function compareCpu(a: CpuMax, b: CpuMax): number {
  const rate = (cpu: CpuMax): number => (cpu.quota === 'max' ? Infinity : cpu.quota / cpu.period);
  const [rateA, rateB] = [rate(a), rate(b)];
  return rateA === rateB ? 0 : rateA - rateB;
}
