import { type CgroupTree, isSameUnified } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { isSameSize } from '../../tmpfs/index.ts';
import { ContainerValues, beforeAndAfter, withoutUnchanged } from './container-values.ts';
import { type PodState, type Registry, podCgroup } from '../../sandbox/index.ts';
import type { ContainerStep, Step } from '../model/index.ts';

/** How much of a step an unfinished transaction has applied. */
export interface Progress {
  /** The applied part of the step; undefined when there is none. */
  readonly written: Step | undefined;
  /** Whether the whole step is applied. */
  readonly isComplete: boolean;
}

/**
 * Compares a step with the kernel and with the runtime's stored values. A value that is neither the step's old nor its new one was
 * written by somebody else since, and does not count as applied.
 */
export async function progressOf(
  parts: { readonly registry: Registry; readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  state: PodState,
  step: Step,
): Promise<Progress> {
  if (step.kind === 'container') return containerProgress(parts, pod, step);
  const isDone = await isApplied(parts, pod, state, step);
  return { written: isDone ? step : undefined, isComplete: isDone };
}

async function isApplied(
  parts: { readonly tree: CgroupTree },
  pod: PodDescription,
  state: PodState,
  step: Exclude<Step, ContainerStep>,
): Promise<boolean> {
  switch (step.kind) {
    case 'volume':
      return state.volumes.some(({ name, size }) => name === step.volume && isSameSize(step.to, size));
    case 'pod-memory':
      return parts.tree.holds(step.to, state.memory);
    case 'pod-cpu':
      return parts.tree.holdsCpu(podCgroup(pod), step.to, state.cpu);
    case 'pod-weight':
      return step.to === state.weight;
    case 'pod-unified':
      return isUnifiedWritten(parts.tree, pod, step);
    case 'runtime':
      return true;
  }
}

async function isUnifiedWritten(
  tree: CgroupTree,
  pod: PodDescription,
  { key, to }: Extract<Step, { kind: 'pod-unified' }>,
): Promise<boolean> {
  const found = await tree.readFile(podCgroup(pod), key);
  return tree.holdsSetting(key, to, found) ?? isSameUnified(to, found);
}

async function containerProgress(
  parts: { readonly registry: Registry; readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  step: ContainerStep,
): Promise<Progress> {
  const values = await ContainerValues.of(parts, pod, step.id);
  const { to } = beforeAndAfter(withoutUnchanged(step));
  return { written: values.written(step), isComplete: values.hasAll(to) };
}
