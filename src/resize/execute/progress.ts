import { type CgroupTree, isSameUnified } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { isSameSize } from '../../tmpfs/index.ts';
import { ContainerValues, beforeAndAfter } from './container-values.ts';
import { type PodState, type Registry, podCgroup } from '../../sandbox/index.ts';
import type { ContainerStep, Step } from '../model/index.ts';

/** How far a step of a transaction came that was cut off. */
export interface Progress {
  /** What of the step is to be found; undefined: nothing. */
  readonly written: Step | undefined;
  /** Whether that is all of it. */
  readonly isComplete: boolean;
}

/**
 * Compares a step with the kernel, and with what the runtime has stored. A value that is neither the step's old nor its new
 * one has been written by somebody else since, and is not part of it.
 */
export async function progressOf(
  context: { readonly registry: Registry; readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  state: PodState,
  step: Step,
): Promise<Progress> {
  if (step.kind === 'container') return containerProgress(context, pod, step);
  const isDone = await isApplied(context, pod, state, step);
  return { written: isDone ? step : undefined, isComplete: isDone };
}

async function isApplied(
  context: { readonly tree: CgroupTree },
  pod: PodDescription,
  state: PodState,
  step: Exclude<Step, ContainerStep>,
): Promise<boolean> {
  switch (step.kind) {
    case 'volume':
      return state.volumes.some(({ name, size }) => name === step.volume && isSameSize(step.to, size));
    case 'pod-memory':
      return context.tree.holds(step.to, state.memory);
    case 'pod-cpu':
      return context.tree.holdsCpu(podCgroup(pod), step.to, state.cpu);
    case 'pod-weight':
      return step.to === state.weight;
    case 'pod-unified':
      return isSameUnified(step.to, await context.tree.readFile(podCgroup(pod), step.key));
    case 'runtime':
      return true;
  }
}

async function containerProgress(
  context: { readonly registry: Registry; readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  step: ContainerStep,
): Promise<Progress> {
  const values = await ContainerValues.of(context, pod, step.id);
  return { written: values.written(step), isComplete: values.hasAll(beforeAndAfter(step).to) };
}
