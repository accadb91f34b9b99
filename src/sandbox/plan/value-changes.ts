import type { ResizeDirection } from '../../core/observe/interfaces.ts';
import type { Bytes, CpuWeight } from '../../core/quantities/numbers.ts';
import type { VolumePolicy } from '../../tmpfs/sizes.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { compareCpu, compareLimits, formatCpuLimit, formatMemory, formatShares, sameCpu } from './amounts.ts';
import type { ContainerStep, Step } from './step.ts';

/** Limits of a container or a pod, with its memory request, which no cgroup has. */
export interface KnownLimits extends Limits {
  readonly memoryRequest?: Bytes;
}

/** Limits of a pod: its own cgroup has a weight too. */
export interface PodLimits extends KnownLimits {
  readonly weight?: CpuWeight;
}

/** Values of one pod as far as they are known. Containers by id, volumes by name. */
export interface KnownValues<Size> {
  readonly pod?: PodLimits;
  readonly containers?: ReadonlyMap<string, KnownLimits>;
  readonly volumes?: ReadonlyMap<string, Size>;
}

/** The change of one value, in the units of Kubernetes. `from` is empty where the value before is not known. */
export interface ValueChange {
  /** `container app memory`, `pod cpu`, `volume cache` */
  readonly value: string;
  readonly from: string;
  readonly to: string;
}

/** Returns the name of a container by its id. */
export type ContainerName = (containerId: string) => string;

/** Returns a request's changes from desired and present values, without {@link memoryRequestChanges}. */
export function requestedChanges(
  desired: KnownValues<VolumePolicy>,
  now: KnownValues<Bytes>,
  nameOf: ContainerName,
): readonly ValueChange[] {
  const volumes = [...(desired.volumes ?? [])].map(([name, policy]) => {
    const size = now.volumes?.get(name);
    return change(`volume ${name}`, size === undefined ? '' : formatMemory(size), policyText(policy));
  });
  return [
    ...limitChanges('pod', desired.pod, now.pod),
    ...[...(desired.containers ?? [])].flatMap(([id, limits]) =>
      limitChanges(`container ${nameOf(id)}`, limits, now.containers?.get(id)),
    ),
    ...volumes,
  ].filter(isChange);
}

/** Returns the memory requests that a request changes. No step sets them: they are in no cgroup. */
export function memoryRequestChanges(
  desired: KnownValues<unknown>,
  now: KnownValues<unknown>,
  nameOf: ContainerName,
): readonly ValueChange[] {
  const all = [
    ['pod', desired.pod, now.pod] as const,
    ...[...(desired.containers ?? [])].map(
      ([id, limits]) => [`container ${nameOf(id)}`, limits, now.containers?.get(id)] as const,
    ),
  ];
  return all.flatMap(([what, { memoryRequest: to } = {}, { memoryRequest: from } = {}]) =>
    to === undefined || to === from
      ? []
      : [change(`${what} memory request`, from === undefined ? '' : formatMemory(from), formatMemory(to))],
  );
}

/** Returns the value changes of a transaction's steps. Callers replace their own call by its changes first. */
export const stepChanges = (steps: readonly Step[], nameOf: ContainerName): readonly ValueChange[] =>
  steps.flatMap((step) => changesOfStep(step, nameOf)).filter(isChange);

/** Merges the changes of two parts of one request: a value in both changes from its first to its last value. */
export function joinedChanges(first: readonly ValueChange[], later: readonly ValueChange[]): readonly ValueChange[] {
  const all = new Map(first.map((one) => [one.value, one]));
  for (const one of later) all.set(one.value, { ...one, from: all.get(one.value)?.from ?? one.from });
  return [...all.values()].filter(isChange);
}

const change = (value: string, from: string, to: string): ValueChange => ({ value, from, to });
const isChange = ({ from, to }: ValueChange): boolean => from !== to;

const amounts = (limits: PodLimits): readonly (readonly [name: string, text: string])[] => [
  ...(limits.memory === undefined ? [] : [['memory', formatMemory(limits.memory)] as const]),
  ...(limits.cpu === undefined ? [] : [['cpu', formatCpuLimit(limits.cpu)] as const]),
  ...(limits.shares === undefined ? [] : [['cpu request', formatShares(limits.shares)] as const]),
  ...(limits.weight === undefined ? [] : [['cpu weight', String(limits.weight)] as const]),
];

function limitChanges(what: string, desired: PodLimits = {}, now: PodLimits = {}): ValueChange[] {
  const before = new Map(amounts(now));
  return amounts(desired).map(([name, to]) => change(`${what} ${name}`, before.get(name) ?? '', to));
}

function changesOfStep(step: Step, nameOf: ContainerName): ValueChange[] {
  switch (step.kind) {
    case 'volume':
      return [change(`volume ${step.volume}`, formatMemory(step.from), formatMemory(step.to))];
    case 'pod-memory':
      return [change('pod memory', formatMemory(step.from), formatMemory(step.to))];
    case 'pod-cpu':
      return [change('pod cpu', formatCpuLimit(step.from), formatCpuLimit(step.to))];
    case 'pod-weight':
      return [change('pod cpu weight', String(step.from), String(step.to))];
    case 'pod-unified':
      return [change(`pod ${step.key}`, step.from, step.to)];
    case 'burst': {
      const what = step.id === undefined ? 'pod' : `container ${nameOf(step.id)}`;
      return [change(`${what} cpu.max.burst`, String(step.from), String(step.to))];
    }
    case 'container':
      return changesOfContainer(`container ${nameOf(step.id)}`, step);
    case 'runtime':
      return [];
  }
}

function changesOfContainer(what: string, { memory, cpu, shares, swap, settings = {} }: ContainerStep): ValueChange[] {
  return [
    ...(memory === undefined ? [] : [change(`${what} memory`, formatMemory(memory.from), formatMemory(memory.to))]),
    ...(cpu === undefined ? [] : [change(`${what} cpu`, formatCpuLimit(cpu.from), formatCpuLimit(cpu.to))]),
    ...(shares === undefined
      ? []
      : [change(`${what} cpu request`, formatShares(shares.from), formatShares(shares.to))]),
    ...(swap === undefined ? [] : [change(`${what} swap`, formatMemory(swap.from), formatMemory(swap.to))]),
    ...Object.entries(settings).map(([file, { from, to }]) => change(`${what} ${file}`, from, to)),
  ];
}

/**
 * Returns the direction of limits and sizes from `from` to `to`. Values that are unknown before or after have no
 * direction. Weights have none either: a resize that changes only a weight is `same`.
 */
export function directionOf(to: KnownValues<Bytes>, from: KnownValues<Bytes>): ResizeDirection {
  const changes = [
    ...limitDirections(to.pod, from.pod),
    ...[...(to.containers ?? [])].flatMap(([id, limits]) => limitDirections(limits, from.containers?.get(id))),
    ...[...(to.volumes ?? [])].map(([name, size]) => size - (from.volumes?.get(name) ?? size)),
  ];
  const up = changes.some((change) => change > 0);
  const down = changes.some((change) => change < 0);
  if (up && down) return 'both';
  return up ? 'up' : down ? 'down' : 'same';
}

function limitDirections(to: PodLimits = {}, from: PodLimits = {}): number[] {
  return [
    ...(to.memory === undefined || from.memory === undefined ? [] : [compareLimits(to.memory, from.memory)]),
    ...(to.cpu === undefined || from.cpu === undefined
      ? []
      : [sameCpu(to.cpu, from.cpu) ? 0 : compareCpu(to.cpu, from.cpu)]),
  ];
}

/** Returns the values of a pod's state. */
export const knownOf = ({ memory, cpu, containers, volumes }: PodState): KnownValues<Bytes> => ({
  pod: { memory, cpu },
  containers: new Map(containers.map(({ id, ...limits }) => [id, limits])),
  volumes: new Map(volumes.map(({ name, size }) => [name, size])),
});

/** Returns the sizes of volumes that do not depend on a limit. */
export const absolute = (policies: ReadonlyMap<string, VolumePolicy>): ReadonlyMap<string, Bytes> =>
  new Map([...policies].flatMap(([name, policy]) => (policy.kind === 'absolute' ? [[name, policy.size]] : [])));

/** Returns a policy as its annotation writes it. `follow, at most 64Mi` comes from the pod's spec instead. */
export function policyText(policy: VolumePolicy): string {
  switch (policy.kind) {
    case 'absolute':
      return formatMemory(policy.size);
    case 'share':
      return `${policy.hundredths / 100}%`;
    case 'container-share':
      return `${policy.hundredths / 100}%/${policy.container}`;
    case 'follow':
      return policy.atMost === undefined ? 'follow' : `follow, at most ${formatMemory(policy.atMost)}`;
    case 'fixed':
      return policy.by ?? 'fixed';
  }
}
