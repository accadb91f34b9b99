import fc from 'fast-check';
import { apply, inPages, podState, volumeSizes, containerChanges } from '../../test/support/resize/pods.ts';
import { type WorkResult, resultOf } from './result.ts';
import type { PodState } from '../../src/sandbox/pod-state.ts';
import type { Step } from '../../src/resize/model/step.ts';
import type { PodTarget } from '../../src/resize/model/target.ts';
import { plan } from '../../src/resize/plan/steps.ts';
import { podLimitsFor } from '../../src/resize/plan/pod-limits.ts';
import type { WorkOptions } from './options.ts';

const CONTAINERS = 10;
const PODS = 1000;
/** The same pods in each run. */
const SEED = 1287;

type Planned = Pick<PodTarget, 'containers' | 'volumes'> & { readonly state: PodState };

/** From a pod's live values and what is asked of it to the steps: its limits, and the plan. */
function planOf({ state, containers = [], volumes }: Planned): Step[] {
  return plan(state, { ...podLimitsFor(state, containers), containers, call: 'none', volumes });
}

/** Pods of the property tests' kind: limits of all directions, tight, loose, exceeded and none, with volumes. */
function varied(): Planned[] {
  const pod = fc.record({ asked: containerChanges, volumes: volumeSizes, state: podState });
  const large = pod.filter(({ state }) => state.containers.length === CONTAINERS);
  const kept = fc.sample(large, { numRuns: PODS, seed: SEED });
  return kept.map(({ asked, volumes, state }) => ({ state, volumes, containers: asked(state) }));
}

/** In this process, by the planner's own code, every pod in turn; the first time of each pod counts as all others. */
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

/** Throws unless the steps, on paper, lead to what was asked. */
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
