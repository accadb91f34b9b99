import fc from 'fast-check';
import { expect } from 'vitest';
import type { CpuMax } from '../../../src/core/quantities/numbers.ts';
import { bytes, cpuWeight, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import type { ContainerStep, PodTarget, Step } from '../../../src/sandbox/plan/step.ts';
import { describeStep } from '../../../src/sandbox/plan/step.ts';
import { plan, reversed } from '../../../src/sandbox/plan/steps.ts';
import type { ContainerLimits, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { cases } from '../property-cases.ts';
import {
  apply,
  containerChanges,
  containersSum,
  cpuLimit,
  cpuSum,
  describeCase,
  excess,
  memoryLimit,
  memorySum,
  NO_OVERHEAD,
  NO_VOLUMES,
  needs,
  PAGE,
  PERIOD,
  podLimit,
  podLimitKinds,
  podState,
  resources,
  sizeOrMax,
  volumeSizes,
} from './pods.ts';

/** Random resizes of random pods for the property tests: the request, the plan, and the result of each step. */

/** A pod, its requested changes, its plan, and the states of the pod before the first and after each step. */
export class Case {
  #steps: readonly Step[] | undefined;
  #states: readonly PodState[] | undefined;

  constructor(
    readonly state: PodState,
    readonly target: PodTarget,
    /** The values that the caller's own call changes. */
    readonly called?: ContainerLimits,
  ) {}

  get steps(): readonly Step[] {
    return (this.#steps ??= plan(this.state, this.target));
  }

  get states(): readonly PodState[] {
    this.#states ??= this.steps.reduce(
      (states, step) => {
        states.push(apply(states.at(-1)!, step, (before) => this.#afterCall(before)));
        return states;
      },
      [this.state],
    );
    return this.#states;
  }

  #afterCall(before: PodState): PodState {
    const containers = this.called === undefined ? [] : [this.called];
    return new Case(before, { containers, call: 'none', volumes: NO_VOLUMES }).end;
  }

  get end(): PodState {
    return this.states.at(-1)!;
  }

  get containerSteps(): readonly ContainerStep[] {
    return this.steps.filter((step) => step.kind === 'container');
  }

  print(): string {
    const { containers = this.called === undefined ? [] : [this.called] } = this.target;
    return describeCase(this.state, { ...this.target, containers }, this.steps);
  }

  [fc.toStringMethod](): string {
    return this.print();
  }
}

/** Pod limits follow the containers, as when the request sets none. */
export const derived: fc.Arbitrary<Case> = fc
  .record({ state: podState, wanted: containerChanges, volumes: volumeSizes })
  .map(({ state, wanted, volumes }) => {
    const containers = wanted(state);
    return new Case(state, { ...podLimitsFor(state, containers), containers, call: 'none', volumes });
  });

const podKind = fc.option(fc.constantFrom(...podLimitKinds), { nil: undefined, freq: 3 });

/** The request sets pod limits: the sum of the containers, more, less, none, or unchanged. */
export const asked: fc.Arbitrary<Case> = fc
  .record({
    state: podState,
    wanted: containerChanges,
    volumes: volumeSizes,
    memoryKind: podKind,
    cpuKind: podKind,
    weight: fc.option(fc.constantFrom(39, 79).map(cpuWeight), { nil: undefined, freq: 2 }),
  })
  .map(({ state, wanted, volumes, memoryKind, cpuKind, weight }) => {
    const containers = wanted(state);
    const then = new Case(state, { containers, call: 'none', volumes }).end;
    return new Case(state, {
      ...(memoryKind && { memory: sizeOrMax(podLimit(memoryKind, memorySum(then), 64 * MiB, PAGE)) }),
      ...(cpuKind && { cpu: quotaOrMax(podLimit(cpuKind, Math.ceil(cpuSum(then)), 50_000, 1000)) }),
      ...(weight && { weight }),
      containers,
      call: 'none',
      volumes,
    });
  });

const quotaOrMax = (quota: number): CpuMax => ({
  quota: quota === Infinity ? 'max' : microseconds(quota),
  period: PERIOD,
});

export const any = fc.oneof(derived, asked);

/** An update of one container by another client, for which the shim adjusts the pod limit. */
export const called: fc.Arbitrary<Case> = fc
  .record({
    state: podState,
    index: fc.nat(9),
    memory: fc.option(memoryLimit, { nil: undefined }),
    cpu: fc.option(cpuLimit, { nil: undefined }),
  })
  .map(({ state, index, memory, cpu }) => {
    const change = {
      id: `c${index % state.containers.length}`,
      ...(memory === undefined ? {} : { memory }),
      ...(cpu === undefined ? {} : { cpu }),
    };
    const target = { ...podLimitsFor(state, [change]), asked: change, call: 'container', volumes: NO_VOLUMES } as const;
    return new Case(state, target, change);
  });

export function holds(numRuns: number, arbitrary: fc.Arbitrary<Case>, check: (found: Case) => void): void {
  fc.assert(fc.property(arbitrary, check), cases(numRuns));
}

/** The states during a rollback, from the end to the start. */
export const undone = (end: PodState, steps: readonly Step[]): readonly PodState[] => {
  const states = [end];
  for (const step of [...steps].reverse()) {
    if (step.kind !== 'runtime') states.push(apply(states.at(-1)!, reversed(step)));
  }
  return states;
};

/**
 * Asserts that no sum exceeds the pod limit in any state, with and without the pod's overhead. For a pod that is
 * over-committed at the start or in the request, no state exceeds it further than start or end. A pod limit that
 * follows its containers does not become over-committed.
 */
export function expectWithin(states: readonly PodState[], podLimitIs: 'derived' | 'requested'): void {
  for (const resource of resources) {
    for (const sum of [needs, containersSum]) {
      const above = states.map((state) => excess(state, resource, sum));
      const [first, last] = [above[0]!, above.at(-1)!];
      const isOver = podLimitIs === 'requested' || excess(states[0]!, resource) > 0;
      const most = !isOver ? 0 : Math.max(0, first, last);
      const at = above.findIndex((much) => much > most);
      if (at !== -1) expect.fail(`${resource} is ${above[at]!} above the pod's limit after ${at} steps`);
    }
  }
}

/** Pods for tests of single plans. Memory is in MiB, CPU in microseconds of a period of 100 ms. */

export const container = (id: string, mebibytes: number | 'max', quota: number | 'max' = 'max') => ({
  id,
  memory: mebibytes === 'max' ? ('max' as const) : bytes(mebibytes * MiB),
  cpu: { quota: quota === 'max' ? ('max' as const) : microseconds(quota), period: PERIOD },
});

export const pod = (memory: number | 'max', quota: number | 'max', containers: PodState['containers']): PodState => ({
  ...container('', memory, quota),
  weight: undefined,
  overhead: NO_OVERHEAD,
  containers,
  volumes: [],
});

export const cpu = (quota: number | 'max', period = 100_000) => ({
  quota: quota === 'max' ? quota : microseconds(quota),
  period: microseconds(period),
});

export const texts = (steps: readonly Step[]): string[] => steps.map(describeStep);
