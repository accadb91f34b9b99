import type { Bytes } from '../../core/quantities/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import { formatCpuLimit, formatMemory, formatShares } from './amounts.ts';
import type { KnownValues, PodLimits } from './known-values.ts';
import { policyText } from './policy-text.ts';
import type { ContainerStep, Step } from './step.ts';

/** The change of one value, in the units of Kubernetes. `from` is empty where the value before is not known. */
export interface ValueChange {
  /** `container app memory`, `pod cpu`, `volume cache` */
  readonly value: string;
  readonly from: string;
  readonly to: string;
}

/** Returns the name of a container by its id. */
export type ContainerName = (containerId: string) => string;

/** Returns what a request changes, from the desired values and the present ones, without {@link memoryRequestChanges}. */
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

/** Returns what the steps of a transaction change. The caller's own call has to be replaced by what it changes. */
export const stepChanges = (steps: readonly Step[], nameOf: ContainerName): readonly ValueChange[] =>
  steps.flatMap((step) => changesOfStep(step, nameOf)).filter(isChange);

/** Returns the changes of two parts of one request: a value that both change goes from its first to its last value. */
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
