import { CPU_BURST, MAX_CPU_QUOTA } from '../../cgroups/values/controller-files.ts';
import { type CpuMax, type Limit, type Microseconds, microseconds } from '../../core/quantities/numbers.ts';
import { isSameSize } from '../../tmpfs/sizes.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { compareCpu, compareLimits, sameCpu, sameMemory } from './amounts.ts';
import { MEMORY_QOS_FILES, sizeIn } from './memory-qos-change.ts';
import type { Change, ContainerStep, PodTarget, Step, UnifiedChange } from './step.ts';

/**
 * Returns the steps from `state` to `target`: shrink volumes, raise the pod limit, update containers, lower the pod
 * limit, grow volumes.
 *
 * - KEP-1287 (order of the pod's and the containers' cgroups): the sum of the containers' limits never exceeds the pod
 *   limit.
 * - KEP-6030 (order of volumes and memory limits): a volume never exceeds a limit that it was below before.
 *
 * A value that the kernel already has, possibly rounded to pages, needs no step. Values that `state` does not contain
 * need none either: a container that does not run, a volume that is not mounted, shares or a weight that were not read.
 *
 * @param stored updates of containers that do not run: the pod limit has room for them, too
 */
export function plan(state: PodState, target: PodTarget, stored: readonly ContainerStep[] = []): Step[] {
  const { shrink, grow } = volumeSteps(state, target);
  const { before, after } = podSteps(state, target);
  const asked = state.containers.find(({ id }) => id === target.asked?.id);
  const call: Step[] = [...burstSteps(asked, target.asked?.cpu), { kind: 'runtime' }];
  const calls = target.call === 'none' ? [] : call;
  const containers = containerSteps(state, target, stored).flatMap((step): Step[] => {
    const burst = burstSteps(
      state.containers.find(({ id }) => id === step.id),
      step.cpu?.to,
    );
    return [...burst, step];
  });
  // KEP-1287: a container's update comes between the raise and the decrease of the pod limit. The pod's own call only
  // reports the written values to the runtime, so it comes last: after an earlier error nothing has been reported.
  const cgroups =
    target.call === 'container'
      ? [...before, ...containers, ...calls, ...after]
      : [...before, ...containers, ...after, ...calls];
  return [...shrink, ...cgroups, ...grow];
}

/** KEP-6030: volumes shrink before all cgroup steps, and grow after them. */
function volumeSteps(state: PodState, { volumes }: PodTarget): { readonly shrink: Step[]; readonly grow: Step[] } {
  const shrink: Step[] = [];
  const grow: Step[] = [];
  for (const { name, size } of state.volumes) {
    const to = volumes.get(name);
    if (to === undefined || isSameSize(to, size)) continue;
    (to < size ? shrink : grow).push({ kind: 'volume', volume: name, from: size, to });
  }
  return { shrink, grow };
}

/**
 * KEP-1287: the pod limit is raised before its containers change, and lowered after them. Memory and CPU are ordered
 * separately: one may go up while the other goes down.
 */
function podSteps(state: PodState, target: PodTarget): { readonly before: Step[]; readonly after: Step[] } {
  const before: Step[] = [];
  const after: Step[] = [];
  const { memory, cpu, weight } = target;
  if (memory !== undefined && !sameMemory(state.memory, memory)) {
    const raise = compareLimits(memory, state.memory) > 0;
    (raise ? before : after).push({ kind: 'pod-memory', from: state.memory, to: memory });
  }
  if (cpu !== undefined && !sameCpu(cpu, state.cpu)) {
    const raise = compareCpu(cpu, state.cpu) > 0;
    // A burst that the request sets is one of its `unified` keys.
    const burst = target.unified?.some(({ key }) => key === CPU_BURST) === true ? undefined : state.burst;
    (raise ? before : after).push(...burstSteps({ burst }, cpu), { kind: 'pod-cpu', from: state.cpu, to: cpu });
  }
  if (weight !== undefined && state.weight !== undefined && weight !== state.weight)
    before.push({ kind: 'pod-weight', from: state.weight, to: weight });
  const { raised, lowered } = unifiedSteps(target);
  return { before: [...before, ...raised], after: [...lowered, ...after] };
}

/**
 * Sizes of memory QoS are ordered relative to the pod limit: memory.high is lowered before it and raised after it, and
 * memory.min and memory.low cover those of the containers at every instant (kernel cgroup-v2: a cgroup is protected no
 * further than the cgroups above it). Other keys have no order.
 */
function unifiedSteps({ unified = [] }: PodTarget): { readonly raised: Step[]; readonly lowered: Step[] } {
  const changed = unified.filter(({ from, to }) => from !== to);
  const isLowered = ({ key, from, to }: UnifiedChange): boolean => {
    const [now, then] = [sizeIn({ [key]: from }, key), sizeIn({ [key]: to }, key)];
    return MEMORY_QOS_FILES.includes(key) && now !== undefined && then !== undefined && compareLimits(then, now) < 0;
  };
  const step = (change: UnifiedChange): Step => ({ kind: 'pod-unified', ...change });
  return {
    raised: changed.filter((change) => !isLowered(change)).map(step),
    lowered: changed.filter(isLowered).map(step),
  };
}

/**
 * KEP-1287: steps that lower the sum of the limits come before steps that raise it, so the sum never exceeds both its
 * old and its new value. kubelet counts a sidecar without a limit as 0: under a pod limit that stays finite, removing a
 * limit lowers the sum, and a first limit raises it. A pod limit that is not finite before or after the change does not
 * limit the containers in between.
 */
function containerSteps(state: PodState, target: PodTarget, stored: readonly ContainerStep[]): ContainerStep[] {
  const { memory = state.memory, cpu = state.cpu } = target;
  const bounded = {
    memory: state.memory !== 'max' && memory !== 'max',
    cpu: state.cpu.quota !== 'max' && cpu.quota !== 'max',
  };
  const running = (target.containers ?? []).flatMap((wanted): ContainerStep[] => {
    const now = state.containers.find(({ id }) => id === wanted.id);
    const step = now && containerChanges(now, wanted);
    return step === undefined ? [] : [step];
  });
  const updates = [...running, ...stored].map((step) => updatesOf(step, bounded));
  return [...updates.flatMap(({ lower }) => lower ?? []), ...updates.flatMap(({ raise }) => raise ?? [])];
}

/**
 * Returns the step that lowers the burst of a container (of the pod without an id) for a new quota. Kernel cgroup-v2,
 * cpu.max.burst: from 0 to the quota. The kernel rejects a quota below the burst, and a sum of both above its largest
 * quota. A later raise of the quota does not restore the burst.
 */
function burstSteps(
  { id, burst }: { readonly id?: string; readonly burst?: Microseconds | undefined } = {},
  cpu: CpuMax | undefined,
): Extract<Step, { kind: 'burst' }>[] {
  const to = burst === undefined ? undefined : loweredBurst(burst, cpu);
  return burst === undefined || to === undefined
    ? []
    : [{ kind: 'burst', ...(id !== undefined && { id }), from: burst, to }];
}

/** Returns the lower burst for a new CPU limit. Undefined if the present burst may stay. */
export function loweredBurst(burst: Microseconds, cpu: CpuMax | undefined): Microseconds | undefined {
  if (cpu === undefined || cpu.quota === 'max') return undefined;
  const most = microseconds(Math.min(cpu.quota, MAX_CPU_QUOTA - cpu.quota));
  return burst <= most ? undefined : most;
}

/** The updates of one container: one, or two when its memory and CPU go opposite ways (KEP-1287). */
interface Updates {
  readonly lower?: ContainerStep;
  readonly raise?: ContainerStep;
}

function updatesOf(step: ContainerStep, bounded: { readonly memory: boolean; readonly cpu: boolean }): Updates {
  const { memory, cpu } = step;
  const byMemory = memory === undefined ? 0 : inSum(compareLimits(memory.to, memory.from), memory, bounded.memory);
  const byCpu =
    cpu === undefined || sameCpu(cpu.from, cpu.to)
      ? 0
      : inSum(compareCpu(cpu.to, cpu.from), { from: cpu.from.quota, to: cpu.to.quota }, bounded.cpu);
  if (byMemory < 0 && byCpu > 0) return { lower: memoryPart(step), raise: cpuPart(step) };
  if (byCpu < 0 && byMemory > 0) {
    const { shares, ...lower } = cpuPart(step);
    return { lower, raise: { ...memoryPart(step), ...(shares && { shares }) } };
  }
  return byMemory < 0 || byCpu < 0 ? { lower: step } : { raise: step };
}

/**
 * Returns the direction in which the sum changes with a limit.
 * @param way the direction of the limit
 * @param isBounded whether the pod limit stays finite: no limit counts as 0 then
 */
function inSum(way: number, { from, to }: Change<Limit<number>>, isBounded: boolean): number {
  return isBounded && (from === 'max') !== (to === 'max') ? -way : way;
}

/** Returns the memory part of a step. It includes memory.high, which changes together with its limit. */
function memoryPart({ kind, id, memory, swap, settings }: ContainerStep): ContainerStep {
  return { kind, id, ...(memory && { memory }), ...(swap && { swap }), ...settingsWhere(settings, isOfMemory) };
}

/** Returns the CPU part of a step, including values without an order: shares, another period, and other settings. */
function cpuPart({ kind, id, cpu, shares, settings }: ContainerStep): ContainerStep {
  const others = settingsWhere(settings, (file) => !isOfMemory(file));
  return { kind, id, ...(cpu && { cpu }), ...(shares && { shares }), ...others };
}

const isOfMemory = (file: string): boolean => file.startsWith('memory.');

/** Returns the wanted settings, and the settings that are written along with each update. */
function settingsWhere(
  settings: ContainerStep['settings'] = {},
  isWanted: (file: string) => boolean,
): Pick<ContainerStep, 'settings'> {
  const found = Object.entries(settings).filter(([file, { from, to }]) => from === to || isWanted(file));
  return found.length === 0 ? {} : { settings: Object.fromEntries(found) };
}

/**
 * Returns one update from a container's values to others, in any direction. Undefined when nothing changes. Swap and
 * settings in `to` are included even if unchanged, because the runtime would write its stored values. Swap is included
 * only together with memory: the runtime stores their sum.
 */
export function containerChanges(from: LiveContainer, to: ContainerLimits): ContainerStep | undefined {
  const memory = changeOf(from.memory, to.memory, sameMemory);
  const cpu = changeOf(from.cpu, to.cpu, sameCpu);
  const shares = from.shares === undefined ? undefined : changeOf(from.shares, to.shares, (a, b) => a === b);
  const swap = from.swap === undefined || to.swap === undefined ? undefined : { from: from.swap, to: to.swap };
  const changesSwap = swap !== undefined && !sameMemory(swap.from, swap.to);
  const settings = settingChanges(from, to);
  const changesSettings = settings.some(([, change]) => change.from !== change.to);
  if (!memory && !cpu && !shares && !changesSwap && !changesSettings) return undefined;
  const unchanged = { from: from.memory, to: from.memory };
  return {
    kind: 'container',
    id: to.id,
    ...((memory ?? changesSwap) && { memory: memory ?? unchanged }),
    ...(cpu && { cpu }),
    ...(shares && { shares }),
    ...(swap && (memory ?? changesSwap) && { swap }),
    ...(settings.length > 0 && { settings: Object.fromEntries(settings) }),
  };
}

function settingChanges({ settings: now = {} }: Limits, { settings: then = {} }: Limits): [string, Change<string>][] {
  return Object.entries(then).flatMap(([file, to]): [string, Change<string>][] => {
    const from = now[file];
    return from === undefined ? [] : [[file, { from, to }]];
  });
}

function changeOf<Value>(
  from: Value,
  to: Value | undefined,
  same: (from: Value, to: Value) => boolean,
): Change<Value> | undefined {
  return to === undefined || same(from, to) ? undefined : { from, to };
}

/**
 * Returns the step that rolls this step back. The caller's own call has none. A rollback runs these steps in reverse
 * order, which also complies with KEP-1287 and KEP-6030.
 */
export function reversed(step: Exclude<Step, { kind: 'runtime' }>): Step {
  if (step.kind === 'container') return reversedContainer(step);
  return { ...step, from: step.to, to: step.from } as Step;
}

/** Returns the update that rolls this one back. */
export function reversedContainer({ id, memory, cpu, shares, swap, settings }: ContainerStep): ContainerStep {
  return {
    kind: 'container',
    id,
    ...(memory && { memory: swapped(memory) }),
    ...(cpu && { cpu: swapped(cpu) }),
    ...(shares && { shares: swapped(shares) }),
    ...(swap && { swap: swapped(swap) }),
    ...(settings && {
      settings: Object.fromEntries(Object.entries(settings).map(([file, change]) => [file, swapped(change)])),
    }),
  };
}

const swapped = <Value>({ from, to }: Change<Value>): Change<Value> => ({ from: to, to: from });
