import type { PodDescription } from '../../runtime/index.ts';
import { stepActions } from './actions.ts';
import { type ContainerStepParts, applyContainerStep, rollBackContainerStep } from './container-step.ts';
import { type OnHigh, lowerMemory, reclaimBy } from './lower-memory.ts';
import type { StepActions } from './transaction.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { podCgroup, podSubject } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

export interface PodActionsParts extends ContainerStepParts {
  readonly volumes: MemoryVolumes;
  /** The longest that memory is reclaimed for a lower limit, in milliseconds. */
  readonly reclaimTimeout: number;
}

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
  context: PodActionsParts,
  pod: PodDescription,
  { call = () => Promise.resolve(), updates, until = reclaimBy(context), onHigh }: ActionOptions,
): StepActions {
  return stepActions({
    tree: context.tree,
    volumes: context.volumes,
    pod,
    cgroup: podCgroup(pod),
    call,
    updateContainer: (step, by) => applyContainerStep(context, pod, step, by, onHigh),
    lowerPod: (memory, by, set) =>
      lowerMemory(context, { ...podSubject(pod), cgroup: podCgroup(pod), memory }, by, set, onHigh),
    reclaimBy: until,
    rollBackContainer: (step, by) =>
      context.calls.run(step.id, () => rollBackContainerStep(context, pod, step, by, onHigh)),
    updates,
    log: context.log,
    counters: context.counters,
  });
}
