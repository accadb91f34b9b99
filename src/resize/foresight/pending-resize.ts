import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../core/quantities/index.ts';
import { type EntryLimits, type PodEntry, milliCpuToQuota, overheadQuota } from '../../kubelet/index.ts';
import type { Limits, LiveContainer, PodState } from '../../sandbox/index.ts';
import { compareCpu, compareLimits, sameCpu, sameMemory } from '../model/index.ts';

/** A resize that kubelet has admitted and not actuated. Absent limits: kubelet does not change them, or they are unknown. */
export interface PendingResize {
  readonly pod: Limits;
  /** By id of running containers: only limits that kubelet has admitted and not actuated. */
  readonly containers: ReadonlyMap<string, Limits>;
}

/** kubelet's entries for one pod, and what is needed to interpret them. */
export interface CheckpointEntries {
  readonly allocated: PodEntry | undefined;
  readonly actuated: PodEntry | undefined;
  /** The names of containers by id. */
  readonly names: ReadonlyMap<string, string>;
  /** The pending pod limits as last derived. */
  readonly before?: PendingPodLimits | undefined;
}

/** The pending limits of the pod's own cgroup, and the entry they are derived from. */
export interface PendingPodLimits {
  readonly allocated: PodEntry;
  readonly limits: Limits;
}

/**
 * Derives the resize that kubelet has admitted and not actuated; undefined if there is none. Limits that kubelet counts as
 * actuated are not pending, even if another program has changed them since: kubelet compares its two checkpoints, not the kernel
 * (kubelet pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction).
 *
 * The pod's own limit is computed as kubelet does for a pod without init containers (kubelet pkg/kubelet/cm/helpers_linux.go,
 * ResourceConfigForPod): the pod-level limit, otherwise the sum of all containers' limits if each has one; plus overhead. It is
 * used only if the present limit follows from the same formula. With init containers it may not: a large one makes the limit
 * larger, and the checkpoint lists none up to 1.35, and since 1.36 all of them, like regular containers. If the present limit
 * follows from no known amounts, in the middle of a resize, the previously derived limit stays.
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
  const areAllKnown = state.containers.every(({ id }) => allocated.containers.has(names.get(id) ?? ''));
  const isMidResize = containers.size > 0 && areAllKnown;
  const found = podLimits(state, { allocated, actuated, isMidResize });
  if (containers.size === 0) return changes(state, found) ? { pod: found, containers } : undefined;
  const isSame = before !== undefined && hasSameAmounts(before.allocated, allocated);
  return { pod: { ...(isSame && before.limits), ...found }, containers };
}

/**
 * Returns the limits that differ. A limit that is absent from the checkpoint stays in force: kubelet removes none (kubelet
 * pkg/kubelet/kuberuntime/kuberuntime_manager.go, doPodResizeAction).
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

function podLimits(state: PodState, records: PodEntries): Limits {
  const memory = podMemory(state, records);
  const cpu = podCpu(state, records);
  return { ...(memory !== undefined && { memory }), ...(cpu !== undefined && { cpu }) };
}

function podMemory(state: PodState, { allocated, actuated, isMidResize }: PodEntries): Bytes | undefined {
  const of = ({ memory }: EntryLimits): number | undefined => memory;
  const wanted = podAmount(allocated, of);
  if (wanted === undefined || state.memory === 'max') return undefined;
  const total = wanted + state.overhead.memory;
  if (!Number.isSafeInteger(total)) return undefined;
  const done = actuated === undefined ? undefined : podAmount(actuated, of);
  const made = [wanted, ...(done === undefined ? [] : [done])].map((amount) => amount + state.overhead.memory);
  const now = state.memory;
  // In the middle of a resize, or without an actuated entry, the present limit may be the sum of the kernel's limits.
  if (isMidResize) made.push(runningSum(state));
  return made.some((amount) => Number.isSafeInteger(amount) && sameMemory(now, bytes(amount)))
    ? bytes(total)
    : undefined;
}

function podCpu(state: PodState, { allocated, actuated }: PodEntries): CpuMax | undefined {
  const of = ({ milliCpu }: EntryLimits): number | undefined => milliCpu;
  const wanted = podAmount(allocated, of);
  if (wanted === undefined || state.cpu.quota === 'max') return undefined;
  const withOverhead = (amount: number): CpuMax => plusOverhead(cpuOf(amount, state.cpu.period), state);
  const done = actuated === undefined ? undefined : podAmount(actuated, of);
  const made = [wanted, ...(done === undefined ? [] : [done])].map(withOverhead);
  return made.some((limit) => sameCpu(limit, state.cpu)) ? withOverhead(wanted) : undefined;
}

/** Returns the amount of the whole pod; undefined if it has none, or if the entry is not completely understood. */
function podAmount(entry: PodEntry, of: (limits: EntryLimits) => number | undefined): number | undefined {
  if (!entry.isComplete || entry.containers.size === 0) return undefined;
  const own = entry.pod === undefined ? undefined : of(entry.pod);
  if (own !== undefined) return own;
  const amounts = [...entry.containers.values()].map(of);
  return amounts.reduce((sum, amount) => (sum === undefined || amount === undefined ? undefined : sum + amount), 0);
}

const runningSum = ({ containers, overhead }: PodState): number =>
  containers.reduce((sum, { memory }) => sum + (memory === 'max' ? Infinity : memory), Number(overhead.memory));

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

/** Returns whether kubelet has admitted a memory limit that it has not actuated, according to its checkpoints. */
export function hasPendingMemory(allocated: PodEntry, actuated: PodEntry | undefined): boolean {
  const differs = (wanted: EntryLimits | undefined, done: EntryLimits | undefined): boolean =>
    wanted?.memory !== undefined && wanted.memory !== done?.memory;
  if (differs(allocated.pod, actuated?.pod)) return true;
  return [...allocated.containers].some(([name, wanted]) => differs(wanted, actuated?.containers.get(name)));
}

const hasSameAmounts = (a: PodEntry, b: PodEntry): boolean =>
  podAmount(a, ({ memory }) => memory) === podAmount(b, ({ memory }) => memory) &&
  podAmount(a, ({ milliCpu }) => milliCpu) === podAmount(b, ({ milliCpu }) => milliCpu);

/** Returns the state of the pod after the pending resize. */
export function stateAfterPending(state: PodState, { pod, containers }: PendingResize): PodState {
  return {
    ...state,
    ...pod,
    containers: state.containers.map((entry): LiveContainer => ({ ...entry, ...containers.get(entry.id) })),
  };
}

/** Returns whether a container's update is a part of the pending resize: it requests the memory limit kubelet has admitted. */
export function matchesContainerUpdate(
  { containers }: PendingResize,
  { id, memory }: { readonly id: string; readonly memory?: Limit<Bytes> },
  now: Limit<Bytes>,
): boolean {
  const wanted = containers.get(id);
  return wanted !== undefined && (memory === undefined || sameMemory(memory, wanted.memory ?? now));
}

/** Returns whether a pod update is a part of the pending resize: it requests the present or the pending memory limit. */
export function matchesPodUpdate({ pod }: PendingResize, state: PodState, memory: Limit<Bytes> | undefined): boolean {
  if (memory === undefined || sameMemory(state.memory, memory)) return true;
  return pod.memory === undefined || sameMemory(memory, pod.memory);
}

/**
 * Returns whether all memory limits of the pending resize are set in `after`, so that volumes can get their final sizes;
 * undefined if unknown.
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
