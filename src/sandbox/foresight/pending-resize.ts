import { type Bytes, bytes, type CpuMax, type Limit, microseconds } from '../../core/index.ts';
import { type EntryLimits, milliCpuToQuota, overheadQuota, type PodEntry } from '../../kubelet/index.ts';
import { compareCpu, compareLimits, sameCpu, sameMemory } from '../plan/amounts.ts';
import { type CountedResource, declaredSum, readingsOf } from '../plan/declared-sum.ts';
import type { DeclaredContainer, DeclaredPod } from '../pods/declared-pod.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';

/** A resize that kubelet admitted and did not actuate. Absent limits do not change, or are unknown. */
export interface PendingResize {
  readonly pod: Limits;
  /** By id of running containers: only limits that kubelet has admitted and not actuated. */
  readonly containers: ReadonlyMap<string, Limits>;
  /** The present pod limits that kubelet may have already written for the resize. Absent: none. */
  readonly written?: WrittenLimits;
}

/** Whether an entry results in the pod's present limit, for some way to count containers of unknown kind. */
export interface WrittenLimits {
  readonly memory: boolean;
  readonly cpu: boolean;
}

/** kubelet's entries for one pod, and the data needed to interpret them. */
export interface CheckpointEntries {
  readonly allocated: PodEntry | undefined;
  readonly actuated: PodEntry | undefined;
  /** The names of containers by id. */
  readonly names: ReadonlyMap<string, string>;
  /** The previously derived pending pod limits. */
  readonly before?: PendingPodLimits | undefined;
}

/** The pending limits of the pod's own cgroup, and the entry they are derived from. */
export interface PendingPodLimits {
  readonly allocated: PodEntry;
  readonly limits: Limits;
}

/**
 * Derives the resize that kubelet has admitted and not actuated; undefined if there is none. Limits that kubelet counts
 * as actuated are not pending, even if another program has changed them since: kubelet compares its two checkpoints,
 * not the kernel (kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction).
 *
 * The pod's own limit is computed as kubelet does, from the declared pod with the limits of the checkpoint ({@link
 * podAmounts}), plus overhead. It is used only if the present limit follows from the same formula. If no known amounts
 * result in the present limit in the middle of a resize, the previously derived limit stays.
 */
export function derivePendingResize(
  state: PodState,
  { allocated, actuated, names, before }: CheckpointEntries,
): PendingResize | undefined {
  if (allocated === undefined) return undefined;
  const containers = new Map<string, Limits>();
  for (const container of state.containers) {
    const name = names.get(container.id) ?? '';
    const wanted = pendingLimits(allocated.containers.get(name), actuated?.containers.get(name), state.cpu.period);
    if (wanted.memory !== undefined || wanted.cpu !== undefined) containers.set(container.id, wanted);
  }
  const context = { state, names };
  const isMidResize = containers.size > 0 && areAllKnown(allocated, context);
  const found = podLimits(context, { allocated, actuated, isMidResize });
  if (containers.size === 0) return changes(state, found) ? { pod: found, containers } : undefined;
  const isSame = before !== undefined && hasSameAmounts(before.allocated, allocated, context);
  const written = writtenLimits(context, allocated);
  return { pod: { ...(isSame && before.limits), ...found }, containers, written };
}

/** Returns which present pod limits this entry may have caused. */
export function writtenLimits(context: EntryContext, entry: PodEntry): WrittenLimits {
  const { state } = context;
  const memory = podAmounts(entry, context, memoryIn).some((amount) => {
    const limit = memoryOf(amount, state);
    return limit !== undefined && state.memory !== 'max' && sameMemory(state.memory, limit);
  });
  const cpu = podAmounts(entry, context, milliCpuIn).some(
    (amount) => amount !== Infinity && hasCpu(state, plusOverhead(cpuOf(amount, state.cpu.period), state)),
  );
  return { memory, cpu };
}

/** Whether the pod has this CPU limit. systemd may have rounded it up. */
function hasCpu({ cpu, inPercents }: PodState, wanted: CpuMax): boolean {
  if (cpu.quota === 'max' || wanted.quota === 'max') return false;
  return cpu.quota >= wanted.quota && cpu.quota - wanted.quota < (inPercents === true ? cpu.period / 100 : 1);
}

function memoryOf(amount: number, { overhead }: PodState): Bytes | undefined {
  const total = amount + overhead.memory;
  return Number.isSafeInteger(total) ? bytes(total) : undefined;
}

/** Whether each running container is listed in the checkpoint or has a known kind, so that its share is known. */
const areAllKnown = (allocated: PodEntry, { state, names }: EntryContext): boolean =>
  state.containers.every(({ id }) => {
    const kind = state.declared?.containers.find((one) => one.id === id)?.kind ?? 'unknown';
    return kind !== 'unknown' || allocated.containers.has(names.get(id) ?? '');
  });

/**
 * Returns the limits that differ. A limit that is absent from the checkpoint stays in force: kubelet does not remove
 * limits (kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction).
 */
function pendingLimits(
  wanted: EntryLimits | undefined,
  done: EntryLimits | undefined,
  period: CpuMax['period'],
): Limits {
  const { memory, milliCpu } = wanted ?? {};
  return {
    ...(memory !== undefined && memory !== done?.memory && { memory }),
    ...(milliCpu !== undefined && milliCpu !== done?.milliCpu && { cpu: cpuOf(milliCpu, period) }),
  };
}

interface PodEntries {
  readonly allocated: PodEntry;
  readonly actuated: PodEntry | undefined;
  /** Whether some containers have pending limits, and the checkpoint lists all running containers. */
  readonly isMidResize: boolean;
}

function podLimits(context: EntryContext, records: PodEntries): Limits {
  const memory = podMemory(context, records);
  const cpu = podCpu(context, records);
  return { ...(memory !== undefined && { memory }), ...(cpu !== undefined && { cpu }) };
}

const memoryIn = ({ memory }: EntryLimits): number | undefined => memory;
const milliCpuIn = ({ milliCpu }: EntryLimits): number | undefined => milliCpu;

function podMemory(context: EntryContext, { allocated, actuated, isMidResize }: PodEntries): Bytes | undefined {
  const { memory: now } = context.state;
  if (now === 'max') return undefined;
  const limitOf = (amount: number): Bytes | undefined => memoryOf(amount, context.state);
  const makesPresent = (amount: number): boolean => {
    const limit = limitOf(amount);
    return limit !== undefined && sameMemory(now, limit);
  };
  const wanted = podAmounts(allocated, context, memoryIn);
  const done = actuated === undefined ? [] : podAmounts(actuated, context, memoryIn);
  // In the middle of a resize, or without an actuated entry, the present limit may be the sum of the kernel's limits.
  const present = isMidResize ? presentAmounts(allocated, context) : [];
  const found = amountAfter(wanted, [done, present], makesPresent);
  return found === undefined ? undefined : limitOf(found);
}

function podCpu(context: EntryContext, { allocated, actuated }: PodEntries): CpuMax | undefined {
  const { state } = context;
  if (state.cpu.quota === 'max') return undefined;
  const limitOf = (amount: number): CpuMax => plusOverhead(cpuOf(amount, state.cpu.period), state);
  const makesPresent = (amount: number): boolean => amount !== Infinity && sameCpu(limitOf(amount), state.cpu);
  const wanted = podAmounts(allocated, context, milliCpuIn);
  const done = actuated === undefined ? [] : podAmounts(actuated, context, milliCpuIn);
  const found = amountAfter(wanted, [done], makesPresent);
  return found === undefined ? undefined : limitOf(found);
}

/**
 * Returns the wanted amount of the pod, for a way to count that results in the present limit, either with the wanted
 * amounts or with other known ones. Undefined if there is no such way, if the pod is to have no limit, or if several
 * such ways result in different amounts.
 *
 * @param wanted one amount for each way to count, in the same order as the lists of `others`
 */
function amountAfter(
  wanted: readonly number[],
  others: readonly (readonly number[])[],
  makesPresent: (amount: number) => boolean,
): number | undefined {
  const found = wanted.filter((_, way) =>
    [wanted, ...others].some((amounts) => {
      const amount = amounts[way];
      return amount !== undefined && makesPresent(amount);
    }),
  );
  const [first] = found;
  return first !== Infinity && found.every((amount) => amount === first) ? first : undefined;
}

const cpuOf = (milliCpu: number, period: CpuMax['period']): CpuMax => ({
  quota: milliCpuToQuota(milliCpu, period),
  period,
});

function plusOverhead(cpu: CpuMax, { overhead }: PodState): CpuMax {
  if (cpu.quota === 'max' || overhead.cpu.quota === 'max') return cpu;
  const { quota, period } = overhead.cpu;
  return { ...cpu, quota: microseconds(cpu.quota + overheadQuota({ quota, period }, cpu.period)) };
}

const changes = ({ memory, cpu }: PodState, wanted: Limits): boolean =>
  (wanted.memory !== undefined && !sameMemory(memory, wanted.memory)) ||
  (wanted.cpu !== undefined && !sameCpu(cpu, wanted.cpu));

/**
 * Returns whether kubelet has admitted a memory limit that it has not actuated, according to its checkpoints. Ignores
 * an ordinary init container that has ended: kubelet 1.36 admits limits for it and never actuates them.
 *
 * @param declared the declared pod, if known
 */
export function hasPendingMemory(allocated: PodEntry, actuated: PodEntry | undefined, declared?: DeclaredPod): boolean {
  const differs = (wanted: EntryLimits | undefined, done: EntryLimits | undefined): boolean =>
    wanted?.memory !== undefined && wanted.memory !== done?.memory;
  if (differs(allocated.pod, actuated?.pod)) return true;
  const hasEnded = (name: string): boolean => {
    const found = declared?.containers.find((one) => one.name === name);
    return found?.state === 'ended' && (found.kind === 'init' || found.mayBeInit === true);
  };
  return [...allocated.containers].some(
    ([name, wanted]) => differs(wanted, actuated?.containers.get(name)) && !hasEnded(name),
  );
}

const hasSameAmounts = (a: PodEntry, b: PodEntry, context: EntryContext): boolean =>
  [memoryIn, milliCpuIn].every((of) => String(podAmounts(a, context, of)) === String(podAmounts(b, context, of)));

/** Returns the state of the pod after the pending resize. */
export function stateAfterPending(state: PodState, { pod, containers }: PendingResize): PodState {
  return {
    ...state,
    ...pod,
    containers: state.containers.map((entry): LiveContainer => ({ ...entry, ...containers.get(entry.id) })),
  };
}

/** Whether a container's update is part of the pending resize: it requests the memory limit kubelet admitted. */
export function matchesContainerUpdate(
  { containers }: PendingResize,
  { id, memory }: { readonly id: string; readonly memory?: Limit<Bytes> },
  now: Limit<Bytes>,
): boolean {
  const wanted = containers.get(id);
  return wanted !== undefined && (memory === undefined || sameMemory(memory, wanted.memory ?? now));
}

/** Whether a pod update is part of the pending resize: it requests the present or the pending memory limit. */
export function matchesPodUpdate({ pod }: PendingResize, state: PodState, memory: Limit<Bytes> | undefined): boolean {
  if (memory === undefined || sameMemory(state.memory, memory)) return true;
  return pod.memory === undefined || sameMemory(memory, pod.memory);
}

/**
 * Returns whether all memory limits of the pending resize are set in `after`, so that volumes can get their final
 * sizes; undefined if unknown.
 */
export function isMemoryComplete(after: PodState, pending: PendingResize): boolean | undefined {
  if (pending.pod.memory === undefined && after.memory !== 'max') return undefined;
  const end = stateAfterPending(after, pending);
  const areDone = after.containers.every(({ memory }, index) => {
    const wanted = end.containers[index]?.memory;
    return wanted === undefined || sameMemory(memory, wanted);
  });
  return areDone && compareLimits(after.memory, end.memory) >= 0;
}

/** Bounds decreases of the pod's limits by its pending limits. */
export function boundDecrease(limits: Limits, { memory, cpu }: PodState, { pod }: PendingResize): Limits {
  const bounded: { -readonly [Key in keyof Limits]: Limits[Key] } = { ...limits };
  if (limits.memory !== undefined && pod.memory !== undefined && compareLimits(limits.memory, memory) < 0) {
    bounded.memory = compareLimits(limits.memory, pod.memory) < 0 ? pod.memory : limits.memory;
    if (compareLimits(bounded.memory, memory) >= 0) delete bounded.memory;
  }
  if (limits.cpu !== undefined && pod.cpu !== undefined && compareCpu(limits.cpu, cpu) < 0) {
    bounded.cpu = compareCpu(limits.cpu, pod.cpu) < 0 ? pod.cpu : limits.cpu;
    if (compareCpu(bounded.cpu, cpu) >= 0) delete bounded.cpu;
  }
  return bounded;
}

/**
 * Limits increases of the pod's limits for a container update to the limits that kubelet has admitted. kubelet writes
 * the pod limit before it raises a container, so a limit that it may have written stays: the ways to count that match
 * the raised limit differ from those that matched the previous one. Other limits are raised at most to the pending
 * limit. An update to a limit that kubelet has not admitted is not bounded.
 *
 * @param asked the limits of the update
 */
export function boundIncrease(limits: Limits, now: PodState, pending: PendingResize, asked: ContainerLimits): Limits {
  const { pod, containers, written } = pending;
  const admitted = containers.get(asked.id) ?? {};
  const bounded: { -readonly [Key in keyof Limits]: Limits[Key] } = { ...limits };
  if (limits.memory !== undefined && compareLimits(limits.memory, now.memory) > 0 && hasSameMemory(asked, admitted)) {
    if (pod.memory !== undefined && compareLimits(limits.memory, pod.memory) > 0) bounded.memory = pod.memory;
    if (written?.memory === true || compareLimits(bounded.memory ?? now.memory, now.memory) <= 0) delete bounded.memory;
  }
  if (limits.cpu !== undefined && compareCpu(limits.cpu, now.cpu) > 0 && hasSameCpu(asked, admitted)) {
    if (pod.cpu !== undefined && compareCpu(limits.cpu, pod.cpu) > 0) bounded.cpu = pod.cpu;
    if (written?.cpu === true || compareCpu(bounded.cpu ?? now.cpu, now.cpu) <= 0) delete bounded.cpu;
  }
  return bounded;
}

const hasSameMemory = (asked: Limits, { memory }: Limits): boolean =>
  asked.memory !== undefined && memory !== undefined && sameMemory(asked.memory, memory);

const hasSameCpu = (asked: Limits, { cpu }: Limits): boolean =>
  asked.cpu !== undefined && cpu !== undefined && sameCpu(asked.cpu, cpu);

/** Input for the interpretation of an entry: the declared pod, and the names of containers by id. */
interface EntryContext {
  readonly state: PodState;
  readonly names: ReadonlyMap<string, string>;
}

/**
 * Returns the pod limit that results from an entry as kubelet computes it, without overhead: one for each way to count
 * the containers of unknown kind, always in the same order. Infinity: no limit. Empty if the entry is not completely
 * understood.
 */
export const podAmounts = (
  entry: PodEntry,
  context: EntryContext,
  of: (limits: EntryLimits) => number | undefined,
): readonly number[] =>
  amountsOf(entry, context, [], { live: () => 0, declared: (limits) => of(limits) ?? Infinity, overhead: 0 });

/** Returns a pod's memory limits like {@link podAmounts}, with the kernel's limits of running containers. */
const presentAmounts = (entry: PodEntry, context: EntryContext): readonly number[] =>
  amountsOf(entry, context, context.state.containers, {
    live: ({ memory }) => (memory === 'max' ? Infinity : memory),
    declared: ({ memory = Infinity }) => memory,
    overhead: 0,
  });

function amountsOf(
  entry: PodEntry,
  context: EntryContext,
  containers: readonly LiveContainer[],
  resource: CountedResource,
): readonly number[] {
  if (!entry.isComplete || entry.containers.size === 0) return [];
  const pod = { containers, declared: declaredIn(entry, context) };
  return readingsOf(pod, resource).map((reading) => declaredSum(pod, resource, reading).sum);
}

/** Returns the declared pod with the limits of an entry. An undeclared container counts as an app container. */
function declaredIn(entry: PodEntry, { state, names }: EntryContext): DeclaredPod {
  const { source = 'kubelet-state', containers = [] } = state.declared ?? {};
  const others = [...entry.containers.keys()].filter((listed) => !containers.some(({ name }) => name === listed));
  const added = others.map((name): DeclaredContainer => {
    const id = state.containers.find((running) => names.get(running.id) === name)?.id;
    return id === undefined ? { name, kind: 'app', state: 'declared' } : { name, kind: 'app', state: 'running', id };
  });
  return {
    source,
    containers: [...containers, ...added].map((one) => {
      const limits = entry.containers.get(one.name);
      return limits === undefined ? one : { ...one, limits };
    }),
    ...(entry.pod && { limits: entry.pod }),
    volumes: new Map(),
  };
}
