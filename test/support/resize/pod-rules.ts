import type { CpuMax, Limit } from '../../../src/core/quantities/index.ts';
import { PAGE } from './pods.ts';
import type { PodState } from '../../../src/sandbox/pod-state.ts';
import type { ContainerStep, Step } from '../../../src/resize/model/step.ts';

/**
 * The rules of docs/resize.md, told apart from the planner's own arithmetic: everything here is whole numbers, and a
 * limit that is not there is a number larger than any sum of those that are.
 */

export const resources = ['memory', 'cpu'] as const;
export type Resource = (typeof resources)[number];

const UNLIMITED = 2 ** 48;
/** A quota in each of the tests' periods is a whole number of these. */
const CPU_UNITS = 300_000;

const amount = (limit: Limit<never> | number): number => (limit === 'max' ? UNLIMITED : limit);
const rate = ({ quota, period }: CpuMax): number => (quota === 'max' ? UNLIMITED : quota * (CPU_UNITS / period));

/** The sum of the containers' limits, without the pod's overhead. */
export const containersSum = ({ containers }: PodState, resource: Resource): number =>
  containers.reduce((sum, { memory, cpu }) => sum + (resource === 'memory' ? amount(memory) : rate(cpu)), 0);

/** That sum and the overhead: in whole pages, as the kernel has a limit that holds just them. */
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

/** By how much a sum is above the pod's limit; negative when there is room, or no limit. */
export function excess(state: PodState, resource: Resource, sum: typeof needs = needs): number {
  const limit = podLimitOf(state, resource);
  return limit === 'max' ? -Infinity : sum(state, resource) - limit;
}

/** Which way a step moves a resource of a container: -1, 0 or 1. */
export function direction(step: ContainerStep, resource: Resource): number {
  if (resource === 'memory')
    return step.memory === undefined ? 0 : Math.sign(amount(step.memory.to) - amount(step.memory.from));
  return step.cpu === undefined ? 0 : Math.sign(rate(step.cpu.to) - rate(step.cpu.from));
}

/** Which way a step moves the pod's own limit: -1, 0 or 1; undefined when it does not touch it. */
export function podDirection(step: Step, resource: Resource): number | undefined {
  if (step.kind === 'pod-memory' && resource === 'memory') return Math.sign(amount(step.to) - amount(step.from));
  if (step.kind === 'pod-cpu' && resource === 'cpu') return Math.sign(rate(step.to) - rate(step.from));
  return undefined;
}
