import type { PodDescription } from '../../runtime/index.ts';
import { type CallersUpdate, stepActions } from './actions.ts';
import { type ContainerStepParts, applyContainerStep, rollBackContainerStep } from './container-step.ts';
import { type OnHigh, lowerMemory, reclaimBy, turnBy } from './lower-memory.ts';
import type { StepActions } from './transaction.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { type DeclaredPod, podCgroup, podSubject } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';
import type { PodJournal } from '../journal/index.ts';

export interface PodActionsParts extends ContainerStepParts {
  readonly volumes: MemoryVolumes;
  readonly journal: PodJournal;
  /** The maximum time of reclaim for a lower memory limit, in milliseconds. */
  readonly reclaimTimeout: number;
}

const BUSY = 'the runtime is busy with another update of this container';

export interface ActionOptions {
  readonly call?: () => Promise<void>;
  /** The caller's own update of a container. */
  readonly asked?: CallersUpdate | undefined;
  readonly updates: readonly ContainerStep[];
  readonly declared?: DeclaredPod | undefined;
  readonly onHigh?: OnHigh | undefined;
  /** Until when memory may be reclaimed, in milliseconds of the steady clock. */
  readonly until?: number | undefined;
  /** The deadline of the transaction, by steadyNow. Default: none. */
  readonly deadline?: number | undefined;
  /** Called with the id of a container for which a plugin of the runtime has chosen other values than requested. */
  readonly onChosen?: ((id: string) => void) | undefined;
}

/**
 * Returns the actions that apply and roll back this pod's steps.
 *
 * @param updates the updates of containers that go with the pod's own steps, including the caller's
 * @param declared the pod as it is declared; without it, only running containers count in a rollback
 */
export function actionsFor(parts: PodActionsParts, pod: PodDescription, given: ActionOptions): StepActions {
  const {
    call = () => Promise.resolve(),
    asked,
    updates,
    declared,
    until = reclaimBy(parts),
    deadline,
    onHigh,
    onChosen,
  } = given;
  const turnUntil = turnBy(parts, deadline);
  return stepActions({
    tree: parts.tree,
    volumes: parts.volumes,
    pod,
    cgroup: podCgroup(pod),
    call,
    asked,
    unanswered: parts.journal.unanswered,
    applyToContainer: (step, by, on) => applyContainerStep(parts, pod, step, { until: by, turnUntil, onHigh, ...on }),
    onChosen,
    lowerPod: (memory, by, set) =>
      lowerMemory(parts, { ...podSubject(pod), cgroup: podCgroup(pod), memory }, by, set, onHigh),
    reclaimBy: until,
    rollBackContainer(step, by, verified) {
      const rollBack = (): Promise<boolean> => rollBackContainerStep(parts, pod, step, { until: by, verified, onHigh });
      return parts.calls.runBy(step.id, rollBack, by, () => new Error(BUSY));
    },
    updates,
    declared,
    log: parts.log,
    counters: parts.counters,
  });
}
