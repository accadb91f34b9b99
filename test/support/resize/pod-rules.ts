import type { CpuMax, Limit } from '../../../src/core/quantities/index.ts';
import { PAGE } from './pods.ts';
import type { PodState } from '../../../src/sandbox/pod-state.ts';
import type { ContainerStep, Step } from '../../../src/resize/model/step.ts';

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

/** The sum of the containers' limits, without the pod's overhead. */
export const containersSum = ({ containers }: PodState, resource: Resource): number =>
  containers.reduce((sum, { memory, cpu }) => sum + (resource === 'memory' ? amount(memory) : rate(cpu)), 0);

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

/** The direction in which a step changes the pod limit: -1, 0 or 1; undefined if it does not. */
export function podDirection(step: Step, resource: Resource): number | undefined {
  if (step.kind === 'pod-memory' && resource === 'memory') return Math.sign(amount(step.to) - amount(step.from));
  if (step.kind === 'pod-cpu' && resource === 'cpu') return Math.sign(rate(step.to) - rate(step.from));
  return undefined;
}
