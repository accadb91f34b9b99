import type { CpuMax, Limit } from '../../../src/core/quantities/numbers.ts';
import { kubeletLimit } from './declared-pods.ts';
import { PAGE, countedIn } from './pods.ts';
import type { Amounts } from '../../../src/sandbox/pods/declared-pod.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import type { ContainerStep, Step } from '../../../src/sandbox/plan/step.ts';

/**
 * The rules of docs/resize.md, independent of the planner's own arithmetic: all values are whole numbers, and a missing
 * limit is a number larger than any sum of the others.
 */

export const resources = ['memory', 'cpu'] as const;
export type Resource = (typeof resources)[number];

const UNLIMITED = 2 ** 48;
/** A quota in each of the test periods is a whole number of these units. */
const CPU_UNITS = 300_000;

const amount = (limit: Limit<never> | number): number => (limit === 'max' ? UNLIMITED : limit);
const rate = ({ quota, period }: CpuMax): number => (quota === 'max' ? UNLIMITED : quota * (CPU_UNITS / period));

/** The limit of the pod by what its containers declare and have, without its overhead. */
export function containersSum(state: PodState, resource: Resource): number {
  const declared = ({ memory, milliCpu }: Amounts): number => {
    if (resource === 'cpu') return milliCpu === undefined ? UNLIMITED : milliCpu * (CPU_UNITS / 1000);
    // The kernel rounds the limit down to a whole page once the container runs.
    return memory === undefined ? UNLIMITED : memory - (memory % PAGE);
  };
  const live = ({ memory, cpu }: LiveContainer): number => (resource === 'memory' ? amount(memory) : rate(cpu));
  const level = state.declared?.limits === undefined ? UNLIMITED : declared(state.declared.limits);
  return kubeletLimit(countedIn(state, { live, declared }), level, UNLIMITED);
}

/** Whether the pod has no limit by what its containers declare and have. */
export const isUnlimited = (state: PodState, resource: Resource): boolean =>
  containersSum(state, resource) === UNLIMITED;

/** The number of limits in that sum: each may be rounded. */
export const countOf = ({ containers, declared }: PodState): number =>
  declared?.containers.filter(({ kind }) => kind !== 'ephemeral').length ?? containers.length;

/** The sum and the overhead in whole pages, as the kernel rounds a limit. */
export function needs(state: PodState, resource: Resource): number {
  const sum = containersSum(state, resource);
  if (resource === 'cpu') return sum + rate(state.overhead.cpu);
  const all = sum + state.overhead.memory;
  return all - (all % PAGE);
}

export const podLimitOf = (state: PodState, resource: Resource): number | 'max' => {
  if (resource === 'memory') return state.memory;
  return state.cpu.quota === 'max' ? 'max' : rate(state.cpu);
};

/** By how much a sum exceeds the pod limit; negative if there is room, or no limit. */
export function excess(state: PodState, resource: Resource, sum: typeof needs = needs): number {
  const limit = podLimitOf(state, resource);
  return limit === 'max' ? -Infinity : sum(state, resource) - limit;
}

/** The direction in which a step changes a resource of a container: -1, 0 or 1. */
export function direction(step: ContainerStep, resource: Resource): number {
  if (resource === 'memory')
    return step.memory === undefined ? 0 : Math.sign(amount(step.memory.to) - amount(step.memory.from));
  return step.cpu === undefined ? 0 : Math.sign(rate(step.cpu.to) - rate(step.cpu.from));
}

/**
 * The direction in which a step moves the sum under a pod limit that stays finite, where a container without a limit is
 * 0 to kubelet; otherwise as {@link direction}.
 */
export function directionInSum(before: PodState, after: PodState, step: ContainerStep, resource: Resource): number {
  const isFinite = [before, after].every((state) => podLimitOf(state, resource) !== 'max');
  const ends =
    resource === 'memory' ? [step.memory?.from, step.memory?.to] : [step.cpu?.from.quota, step.cpu?.to.quota];
  const [hadNone, hasNone] = ends.map((end) => end === 'max');
  const way = direction(step, resource);
  return isFinite && hadNone !== hasNone ? -way : way;
}

/** The direction in which a step changes the pod limit: -1, 0 or 1; undefined if it does not. */
export function podDirection(step: Step, resource: Resource): number | undefined {
  if (step.kind === 'pod-memory' && resource === 'memory') return Math.sign(amount(step.to) - amount(step.from));
  if (step.kind === 'pod-cpu' && resource === 'cpu') return Math.sign(rate(step.to) - rate(step.from));
  return undefined;
}
