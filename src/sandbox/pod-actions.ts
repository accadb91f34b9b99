import type { PodDescription } from '../runtime/index.ts';
import { stepActions } from './actions.ts';
import { takeBackByRuntime, updateContainer } from './container-step.ts';
import type { ResizeContext } from './context.ts';
import { podCgroup } from './live.ts';
import { type OnHigh, lowerMemory, podNamed, reclaimBy } from './room.ts';
import type { ContainerStep } from './state.ts';
import type { StepActions } from './transaction.ts';

export interface ActionOptions {
  readonly call?: () => Promise<void>;
  readonly updates: readonly ContainerStep[];
  readonly onHigh?: OnHigh | undefined;
  /** Until when memory may be reclaimed, in milliseconds since the epoch. */
  readonly until?: number | undefined;
}

/**
 * How the steps of this pod are carried out and taken back.
 * @param updates those of containers that go with the pod's own steps, the caller's among them
 */
export function actionsFor(
  context: ResizeContext,
  pod: PodDescription,
  { call = () => Promise.resolve(), updates, until = reclaimBy(context), onHigh }: ActionOptions,
): StepActions {
  return stepActions({
    tree: context.tree,
    volumes: context.volumes,
    pod,
    cgroup: podCgroup(pod),
    call,
    updateContainer: (step, by) => updateContainer(context, pod, step, by, onHigh),
    lowerPod: (memory, by, set) =>
      lowerMemory(context, { ...podNamed(pod), cgroup: podCgroup(pod), memory }, by, set, onHigh),
    reclaimBy: until,
    takeBack: (step, by) => context.calls.run(step.id, () => takeBackByRuntime(context, pod, step, by, onHigh)),
    updates,
    log: context.log,
    counters: context.counters,
  });
}
