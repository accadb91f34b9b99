import { type Bytes, type CpuMax, type Limit, bytes, microseconds } from '../../core/quantities/index.ts';
import { type EntryLimits, type PodEntry, milliCpuToQuota, overheadQuota } from '../../kubelet/index.ts';
import type { Limits, LiveContainer, PodState } from '../../sandbox/index.ts';
import { compareCpu, compareLimits, sameCpu, sameMemory } from '../model/index.ts';

/** Where a resize of kubelet's leads. */
export interface Foreseen {
  readonly pod: Limits;
  /** By container id, of those that run: only what kubelet has admitted and not carried out. */
  readonly containers: ReadonlyMap<string, Limits>;
}

/** What is known of one pod. */
export interface Known {
  readonly allocated: PodEntry | undefined;
  readonly actuated: PodEntry | undefined;
  /** The names of containers by id. */
  readonly names: ReadonlyMap<string, string>;
  /** What was foreseen of the pod when it was last looked at. */
  readonly before?: PodForeseen | undefined;
}

/** The pod's own limits, and what they were made of. */
export interface PodForeseen {
  readonly allocated: PodEntry;
  readonly limits: Limits;
}

/**
 * What kubelet has admitted for a pod and not carried out, or undefined when there is nothing such. What kubelet counts as
 * carried out is left alone, whoever has changed it since: kubelet compares its two records, not the kernel.
 *
 * The pod's own limit is what kubelet makes of it: the pod-level limit, else the sum of all its containers' limits if each has
 * one; plus overhead. It is known only where the present one is made so: a large init container, of which the record
 * says nothing, makes a larger one. Where the present one is made of nothing that is known, in the middle of a resize, it is as it was
 * foreseen before.
 */
export function foresee(state: PodState, { allocated, actuated, names, before }: Known): Foreseen | undefined {
  if (allocated === undefined) return undefined;
  const containers = new Map<string, Limits>();
  for (const container of state.containers) {
    const name = names.get(container.id) ?? '';
    const wanted = pending(allocated.containers.get(name), actuated?.containers.get(name), state.cpu.period);
    if (wanted.memory !== undefined || wanted.cpu !== undefined) containers.set(container.id, wanted);
  }
  const areAllKnown = state.containers.every(({ id }) => allocated.containers.has(names.get(id) ?? ''));
  const goesWithThem = containers.size > 0 && areAllKnown;
  const found = podLimits(state, { allocated, actuated, goesWithThem });
  if (containers.size === 0) return changes(state, found) ? { pod: found, containers } : undefined;
  const isSame = before !== undefined && hasSameAmounts(before.allocated, allocated);
  return { pod: { ...(isSame && before.limits), ...found }, containers };
}

/** A limit that is gone from the record stays in force: kubelet takes none away. */
function pending(wanted: EntryLimits | undefined, done: EntryLimits | undefined, period: CpuMax['period']): Limits {
  const { memory, milliCpu } = wanted ?? {};
  return {
    ...(memory !== undefined && memory !== done?.memory && { memory }),
    ...(milliCpu !== undefined && milliCpu !== done?.milliCpu && { cpu: cpuOf(milliCpu, period) }),
  };
}

interface Records {
  readonly allocated: PodEntry;
  readonly actuated: PodEntry | undefined;
  /** Whether some of the pod's containers are under way, and the records have all of them. */
  readonly goesWithThem: boolean;
}

function podLimits(state: PodState, records: Records): Limits {
  const memory = podMemory(state, records);
  const cpu = podCpu(state, records);
  return { ...(memory !== undefined && { memory }), ...(cpu !== undefined && { cpu }) };
}

function podMemory(state: PodState, { allocated, actuated, goesWithThem }: Records): Bytes | undefined {
  const of = ({ memory }: EntryLimits): number | undefined => memory;
  const wanted = podAmount(allocated, of);
  if (wanted === undefined || state.memory === 'max') return undefined;
  const whole = wanted + state.overhead.memory;
  if (!Number.isSafeInteger(whole)) return undefined;
  const done = actuated === undefined ? undefined : podAmount(actuated, of);
  const made = [wanted, ...(done === undefined ? [] : [done])].map((amount) => amount + state.overhead.memory);
  const now = state.memory;
  // In the middle of a resize, or without a record of what was carried out, the kernel tells.
  if (goesWithThem) made.push(runningSum(state));
  return made.some((amount) => Number.isSafeInteger(amount) && sameMemory(now, bytes(amount)))
    ? bytes(whole)
    : undefined;
}

function podCpu(state: PodState, { allocated, actuated }: Records): CpuMax | undefined {
  const of = ({ milliCpu }: EntryLimits): number | undefined => milliCpu;
  const wanted = podAmount(allocated, of);
  if (wanted === undefined || state.cpu.quota === 'max') return undefined;
  const withOverhead = (amount: number): CpuMax => plusOverhead(cpuOf(amount, state.cpu.period), state);
  const done = actuated === undefined ? undefined : podAmount(actuated, of);
  const made = [wanted, ...(done === undefined ? [] : [done])].map(withOverhead);
  return made.some((limit) => sameCpu(limit, state.cpu)) ? withOverhead(wanted) : undefined;
}

/** Of the pod as a whole; undefined where it has none, or where not all of the record is understood. */
function podAmount(entry: PodEntry, of: (limits: EntryLimits) => number | undefined): number | undefined {
  if (!entry.isWhole || entry.containers.size === 0) return undefined;
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

/** Whether kubelet has admitted a memory limit that it has not carried out, as far as its records tell. */
export function isUnderWay(allocated: PodEntry, actuated: PodEntry | undefined): boolean {
  const differs = (wanted: EntryLimits | undefined, done: EntryLimits | undefined): boolean =>
    wanted?.memory !== undefined && wanted.memory !== done?.memory;
  if (differs(allocated.pod, actuated?.pod)) return true;
  return [...allocated.containers].some(([name, wanted]) => differs(wanted, actuated?.containers.get(name)));
}

const hasSameAmounts = (a: PodEntry, b: PodEntry): boolean =>
  podAmount(a, ({ memory }) => memory) === podAmount(b, ({ memory }) => memory) &&
  podAmount(a, ({ milliCpu }) => milliCpu) === podAmount(b, ({ milliCpu }) => milliCpu);

/** The pod as it will be once all of that has been carried out. */
export function foreseenState(state: PodState, { pod, containers }: Foreseen): PodState {
  return {
    ...state,
    ...pod,
    containers: state.containers.map((entry): LiveContainer => ({ ...entry, ...containers.get(entry.id) })),
  };
}

/** Whether a container's update is a part of that resize: it then asks for the memory limit that kubelet has admitted. */
export function agrees(
  { containers }: Foreseen,
  { id, memory }: { readonly id: string; readonly memory?: Limit<Bytes> },
  now: Limit<Bytes>,
): boolean {
  const wanted = containers.get(id);
  return wanted !== undefined && (memory === undefined || sameMemory(memory, wanted.memory ?? now));
}

/** Whether an update of the pod itself is: its memory limit is the present one, or the one that it leads to. */
export function agreesWithPod({ pod }: Foreseen, state: PodState, memory: Limit<Bytes> | undefined): boolean {
  if (memory === undefined || sameMemory(state.memory, memory)) return true;
  return pod.memory === undefined || sameMemory(memory, pod.memory);
}

/**
 * Whether all updates of memory have been made once a pod is like this: what volumes go by has come to its end. Undefined
 * where nobody can tell.
 */
export function isMemoryDone(after: PodState, foreseen: Foreseen): boolean | undefined {
  if (foreseen.pod.memory === undefined && after.memory !== 'max') return undefined;
  const end = foreseenState(after, foreseen);
  const areDone = after.containers.every(({ memory }, index) => {
    const wanted = end.containers[index]?.memory;
    return wanted === undefined || sameMemory(memory, wanted);
  });
  return areDone && compareLimits(after.memory, end.memory) >= 0;
}

/** A lowering of the pod's limits that goes with its containers, no further than where they are led to. */
export function noLowerThan(limits: Limits, { memory, cpu }: PodState, { pod }: Foreseen): Limits {
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
