import fc from 'fast-check';
import { podLimitsFor } from '../../src/sandbox/plan/pod-limits.ts';
import type { PodTarget, Step } from '../../src/sandbox/plan/step.ts';
import { plan } from '../../src/sandbox/plan/steps.ts';
import type { PodState } from '../../src/sandbox/pods/pod-state.ts';
import { apply, containerChanges, inPages, podState, volumeSizes } from '../../test/support/resize/pods.ts';
import type { WorkOptions } from './options.ts';
import { resultOf, type WorkResult } from './result.ts';

const CONTAINERS = 10;
const PODS = 1000;
/** A fixed seed, so that each run has the same pods. */
const SEED = 1287;

type Planned = Pick<PodTarget, 'containers' | 'volumes'> & { readonly state: PodState };

/** Computes limits and plan for a pod's live values and requested changes. */
function planOf({ state, containers = [], volumes }: Planned): Step[] {
  return plan(state, { ...podLimitsFor(state, containers), containers, call: 'none', volumes });
}

/** Pods like those of the property tests: limits in all directions, tight, loose, exceeded and none, with volumes. */
function varied(): Planned[] {
  const pod = fc.record({ changes: containerChanges, volumes: volumeSizes, state: podState });
  const large = pod.filter(({ state }) => state.containers.length === CONTAINERS);
  const pods = fc.sample(large, { numRuns: PODS, seed: SEED });
  return pods.map(({ changes, volumes, state }) => ({ state, volumes, containers: changes(state) }));
}

/**
 * Runs the planner's own code in this process for every pod in turn. The first run of each pod counts like all others.
 */
export function measurePlan({ seconds }: WorkOptions): Promise<WorkResult[]> {
  const pods = varied();
  const times: number[] = [];
  const until = performance.now() + seconds * 1000;
  do {
    for (const pod of pods) {
      const begin = performance.now();
      const steps = planOf(pod);
      times.push((performance.now() - begin) * 1000);
      assertReached(pod, steps);
    }
  } while (performance.now() < until);
  return Promise.resolve([resultOf('Plan for 10 containers', 'us', times)]);
}

/** Throws unless applying the steps to the model results in the requested values. */
function assertReached({ state, containers = [] }: Planned, steps: readonly Step[]): void {
  const end = steps.reduce((pod, step) => apply(pod, step), state);
  for (const { id, memory, cpu } of containers) {
    const found = end.containers.find((container) => container.id === id);
    const hasMemory = memory === undefined || found?.memory === inPages(memory);
    const hasCpu = cpu === undefined || rate(found?.cpu) === rate(cpu);
    if (!hasMemory || !hasCpu) throw new Error(`a plan leaves ${id} at ${JSON.stringify(found)}`);
  }
}

const rate = (cpu: PodState['cpu'] | undefined): number =>
  cpu === undefined || cpu.quota === 'max' ? Infinity : cpu.quota / cpu.period;
