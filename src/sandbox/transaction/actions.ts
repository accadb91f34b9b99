import { type CgroupPath, type CgroupTree, type SwapLimits, isCgroupVanished } from '../../cgroups/index.ts';
import {
  type Bytes,
  Code,
  type Counters,
  type Limit,
  type Log,
  Reason,
  ShimError,
  bytes,
  noCounters,
  noLog,
  steadyNow,
} from '../../core/index.ts';
import { type PodDescription, isUnanswered } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { type OnHigh, ROLLBACK_MS, lowerMemory, reclaimBy, turnBy } from './lower-memory.ts';
import { isForeign } from './step-progress.ts';
import {
  type ContainerStepParts,
  type OnUpdate,
  applyContainerStep,
  fitBurst,
  rollBackContainerStep,
  writeBurst,
} from './container-step.ts';
import { type StepActions, StepSkipped } from './transaction.ts';
import { blockingUse } from '../admission/memory-in-use.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import { podCgroup, readPod } from '../pods/read-pod.ts';
import { podSubject } from '../pods/names.ts';
import { type Change, type ContainerStep, type Step, describeStep } from '../plan/step.ts';
import { compareCpu, compareLimits } from '../plan/amounts.ts';
import type { UnansweredUpdates } from '../journal/unanswered.ts';
import {
  fitsPreviousLimit,
  fitsRolledBack,
  hasRaisedContainer,
  ifTheyArrive,
  nextContainersExceed,
} from '../plan/pod-limits.ts';
import { reversed, reversedContainer } from '../plan/steps.ts';
import type { PodJournal } from '../journal/pod-journal.ts';

/** What applies the steps of one pod. */
export interface StepActionsParts {
  readonly tree: CgroupTree;
  readonly volumes: MemoryVolumes;
  readonly pod: PodDescription;
  readonly cgroup: CgroupPath;
  /** The caller's own call to the runtime. */
  readonly call: () => Promise<void>;
  /** The changes of the caller's own call, and what it sets. Undefined without such a call. */
  readonly asked?: CallersUpdate | undefined;
  /** Asks the runtime for one container's new values, and verifies them. An update that fails before it is sent has changed nothing. */
  readonly applyToContainer: (step: ContainerStep, reclaimBy: number, on: OnUpdate) => Promise<void>;
  /** Called with the id of a container for which a plugin of the runtime has chosen other values. */
  readonly onChosen?: ((id: string) => void) | undefined;
  /** Runs `set`, which sets the pod's memory limit, once the pod's usage is below it. */
  readonly lowerPod: (memory: Change<Limit<Bytes>>, reclaimBy: number, set: () => Promise<void>) => Promise<void>;
  /** Until when memory may be reclaimed, in milliseconds of the steady clock. A rollback has time of its own. */
  readonly reclaimBy: number;
  /**
   * Rolls a container's update back where the kernel or the runtime lacks the old values. Returns whether it has: of an update that is
   * `verified`, a value that another process has written since stays.
   */
  readonly rollBackContainer: (step: ContainerStep, reclaimBy: number, verified: boolean) => Promise<boolean>;
  /** The updates of containers that go with the pod's own steps, including the caller's. */
  readonly updates: readonly ContainerStep[];
  /** The pod as it is declared: containers that do not run need their limits too. */
  readonly declared?: DeclaredPod | undefined;
  /** Updates of the pod's containers that the runtime has not answered. */
  readonly unanswered: UnansweredUpdates;
  readonly log?: Log;
  readonly counters?: Counters;
}

/** The caller's own update of a container. */
export interface CallersUpdate {
  /** What it changes; undefined for nothing. */
  readonly changes: ContainerStep | undefined;
  /** The values that it sets, changed or not. */
  readonly sets: ContainerLimits;
}

interface ActionsInUse extends StepActionsParts {
  /** Steps that have failed before they changed anything: updates that were never sent, and limits that were not lowered. */
  readonly untouched: Set<Step>;
  /** Steps that are applied and verified. */
  readonly applied: Set<Step>;
  /** Steps in place of which a plugin of the runtime has chosen other values. */
  readonly chosen: Set<Step>;
  /** What the kernel printed after the step of a setting was written. */
  readonly printed: Map<Step, string>;
}

/** Returns the actions that apply steps to the kernel and the runtime, and roll them back within the ordering rules. */
function stepActions(given: StepActionsParts): StepActions {
  const parts: ActionsInUse = {
    ...given,
    untouched: new Set(),
    applied: new Set(),
    chosen: new Set(),
    printed: new Map(),
  };
  const { pod, unanswered, log = noLog } = parts;
  /** Whether a value of the rollback so far could not be restored. */
  let isIncomplete = false;
  return {
    apply: (step) => applyAndNote(parts, step),
    async rollBack(step) {
      // Its rollback would need the runtime, which the step may have waited for, or may not have reached.
      if (parts.untouched.has(step)) return;
      try {
        isIncomplete ||= unanswered.of(pod.sandboxId).length > 0;
        if (isIncomplete) await assertFitsRolledBack(parts, step);
        const isRestored = await rollBackStep(parts, step);
        isIncomplete ||= !isRestored;
      } catch (error) {
        // The pod or the volume has ended, perhaps by what made the step fail: nothing is left to roll back.
        if (isCgroupVanished(error) || isVolumeGone(error)) return;
        isIncomplete = true;
        throw error;
      }
    },
    skipped(step, error) {
      const why = error instanceof Error ? error.message : String(error);
      log.warn({ pod: pod.sandboxId, step: describeStep(step), error: why }, 'step after the update skipped');
    },
  };
}

/** Applies a step, and notes what a rollback has to know of it. */
async function applyAndNote(parts: ActionsInUse, step: Step): Promise<void> {
  const { pod, unanswered } = parts;
  const update = updateOf(parts, step);
  // A file may have another value although its write has failed.
  const progress = { isSent: step.kind !== 'container' };
  const on: OnUpdate = {
    onSent: () => (progress.isSent = true),
    onChosen: () => parts.chosen.add(step),
  };
  try {
    if (parts.chosen.size > 0) await assertFitsChosen(parts, step);
    await applyStep(parts, step, parts.reclaimBy, on);
    if (!parts.chosen.has(step)) parts.applied.add(step);
    else if (step.kind === 'container') parts.onChosen?.(step.id);
  } catch (error) {
    if (!progress.isSent || isNotLowered(error) || error instanceof StepSkipped) parts.untouched.add(step);
    if (progress.isSent && update?.changes && isUnanswered(error)) unanswered.add(pod.sandboxId, [update.changes]);
    throw error;
  }
  if (update) unanswered.answered(pod.sandboxId, update.sets);
}

async function applyStep(parts: ActionsInUse, step: Step, deadline: number, on: OnUpdate = {}): Promise<unknown> {
  const { tree, cgroup } = parts;
  switch (step.kind) {
    case 'volume':
      return remount(parts.volumes, parts.pod, step, parts.counters ?? noCounters);
    case 'pod-memory':
      return parts.lowerPod(step, deadline, async () => {
        await tree.write(cgroup, { file: 'memory.max', value: step.to });
      });
    case 'pod-cpu':
      await fitBurst(tree, cgroup, step.to);
      return tree.write(cgroup, { file: 'cpu.max', value: step.to });
    case 'pod-weight':
      return tree.write(cgroup, { file: 'cpu.weight', value: step.to });
    case 'pod-unified':
      return writeUnified(parts, step);
    case 'burst':
      return writeBurst(tree, parts.pod, step);
    case 'container':
      return parts.applyToContainer(step, deadline, on);
    case 'runtime':
      return parts.call();
  }
}

/** Throws CGROUP_WRITE_FAILED when the kernel has accepted the value, and still has another one. */
async function writeUnified(
  { tree, cgroup, pod, printed }: ActionsInUse,
  step: Extract<Step, { kind: 'pod-unified' }>,
): Promise<void> {
  const { key, to } = step;
  const { found } = await tree.write(cgroup, { file: 'unified', key, value: to });
  printed.set(step, found);
  if (tree.holdsSetting(key, to, found) !== false) return;
  const message = `${cgroup}/${key}: the file contains ${JSON.stringify(found)} after ${JSON.stringify(to)} was written`;
  const context = { pod: pod.sandboxId, file: `${cgroup}/${key}`, asked: to, found };
  throw new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, context);
}

/** Returns the update of a container that a step makes. */
function updateOf({ asked }: StepActionsParts, step: Step): CallersUpdate | undefined {
  if (step.kind === 'runtime') return asked;
  if (step.kind !== 'container') return undefined;
  const { id, memory, cpu, shares } = step;
  const sets = {
    id,
    ...(memory && { memory: memory.to }),
    ...(cpu && { cpu: cpu.to }),
    ...(shares && { shares: shares.to }),
  };
  return { changes: step, sets };
}

/** An update that may still arrive would overwrite the old values. The recovery waits for it outside of the pod's lock. */
function assertAnswered({ unanswered, pod }: StepActionsParts, { id }: ContainerStep): void {
  if (unanswered.of(pod.sandboxId).some((update) => update.id === id))
    throw new Error('the runtime has not answered an update of this container, which may still arrive');
}

/** Returns false for a pod limit that stays raised. A value that another process has written meanwhile stays. */
async function rollBackStep(parts: ActionsInUse, step: Step): Promise<boolean> {
  const { pod, log = noLog } = parts;
  const fields = { pod: pod.sandboxId, step: describeStep(step) };
  if (step.kind === 'runtime') return true;
  if (step.kind === 'container') {
    assertAnswered(parts, step);
    // One that failed may be written in part, or with other values.
    const isLeft = !(await parts.rollBackContainer(step, steadyNow() + ROLLBACK_MS, parts.applied.has(step)));
    if (isLeft) log.warn(fields, 'step not rolled back: its values are no longer there');
  } else if (await isForeign(parts, pod, step, parts.printed.get(step))) {
    log.warn(fields, 'step not rolled back: another process has written the value');
  } else if (step.kind === 'pod-memory' && (await isInKernel(parts, step.from))) {
    // Written again for a unit of systemd that has the new limit. Usage is below it, so nothing is reclaimed.
    await parts.tree.write(parts.cgroup, { file: 'memory.max', value: step.from });
  } else if (await canRestorePodLimit(parts, step)) {
    await applyStep(parts, reversed(step), steadyNow() + ROLLBACK_MS);
  } else {
    log.warn(fields, 'pod limit left raised: its containers need it');
    return false;
  }
  return true;
}

/** Whether this is the pod's present memory limit. */
async function isInKernel({ tree, cgroup }: StepActionsParts, limit: Limit<Bytes>): Promise<boolean> {
  return tree.holds(limit, (await tree.readLimits(cgroup)).memoryMax);
}

/** Reads the pod as it is, or as it will be at most. */
async function readNow({ tree, pod, declared, unanswered }: StepActionsParts): Promise<PodState> {
  return ifTheyArrive(await readPod(tree, pod, [], declared), unanswered.of(pod.sandboxId));
}

/**
 * KEP-1287: what could not be restored may take the room of a container that this step has lowered. Throws if its old limits do not fit:
 * the next rollback restores them together. Without such a value, the pod is as it was, and may have been below the sum before.
 */
async function assertFitsRolledBack(parts: StepActionsParts, step: Step): Promise<void> {
  if (step.kind !== 'container' || fitsRolledBack(await readNow(parts), step)) return;
  throw new Error('the pod limit has no room for the old limits until the steps after it are rolled back');
}

/**
 * KEP-1287: the sum of the containers' limits never exceeds the pod limit, also during a rollback. Returns whether the pod's old
 * limit may be restored: a call that failed, or could not be rolled back, may have left a container's limit raised.
 */
async function canRestorePodLimit(parts: StepActionsParts, step: Step): Promise<boolean> {
  const { tree, cgroup, updates } = parts;
  if (step.kind !== 'pod-memory' && step.kind !== 'pod-cpu') return true;
  const now = await readNow(parts);
  // A pod limit that was below the sum from the start is restored anyway.
  if (hasRaisedContainer(now, updates, step.kind) && !fitsPreviousLimit(now, step)) return false;
  if (nextContainersExceed(now, updates, step)) return false;
  if (step.kind === 'pod-cpu') return true;
  // A failed rollback is worse than a limit that stays raised: swap may fill up meanwhile.
  const swapAfter: SwapLimits = new Map([[cgroup, bytes(0)]]);
  return (await blockingUse(tree, { cgroup, now: step.to, wanted: step.from, swapAfter })) === undefined;
}

/**
 * KEP-1287: the sum of the containers' limits never exceeds the pod limit, also where a plugin of the runtime has kept a limit that was
 * to be lowered. Throws {@link StepSkipped} for a decrease of the pod limit that the containers do not fit, and CGROUP_WRITE_FAILED for
 * an increase of a container.
 */
async function assertFitsChosen(parts: ActionsInUse, step: Step): Promise<void> {
  const now = await readNow(parts);
  if (step.kind === 'container' && fitsNow(now) && !fitsRolledBack(now, reversedContainer(step))) {
    const message = `container ${step.id}: the pod limit has no room for its limits: a plugin of the runtime has chosen others for another container`;
    const where = { pod: parts.pod.sandboxId, container: step.id };
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_WRITE_FAILED, message, where);
  }
  if (step.kind !== 'pod-memory' && step.kind !== 'pod-cpu') return;
  const isLowered =
    step.kind === 'pod-memory' ? compareLimits(step.to, step.from) < 0 : compareCpu(step.to, step.from) < 0;
  if (isLowered && !fitsPreviousLimit(now, reversed(step) as typeof step))
    throw new StepSkipped('a plugin of the runtime has chosen other limits for a container');
}

/** Whether the containers fit the present pod limits: they may exceed limits that are set so on purpose, or by what a plugin has chosen. */
const fitsNow = (now: PodState): boolean =>
  fitsPreviousLimit(now, { kind: 'pod-memory', from: now.memory, to: now.memory }) &&
  fitsPreviousLimit(now, { kind: 'pod-cpu', from: now.cpu, to: now.cpu });

async function remount(
  volumes: MemoryVolumes,
  pod: PodDescription,
  { volume, from, to }: Extract<Step, { kind: 'volume' }>,
  counters: Counters,
): Promise<void> {
  const direction = to < from ? 'shrink' : 'grow';
  try {
    const { outcome } = await volumes.remount({ podUid: pod.metadata.uid, name: volume }, to);
    if (outcome === 'remounted') counters.remount(direction, 'done');
  } catch (error) {
    counters.remount(direction, isInUse(error) ? 'refused' : 'failed');
    throw error;
  }
}

/** KEP-6030: a volume does not shrink below what it stores. */
export const isInUse = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.VOLUME_IN_USE;

/** Whether a step has failed before the limit was set, see {@link lowerMemory}. */
const isNotLowered = (error: unknown): boolean =>
  error instanceof ShimError &&
  (error.reason === Reason.MEMORY_NOT_RECLAIMABLE || error.reason === Reason.RECLAIM_TIMEOUT);

const isVolumeGone = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.UNKNOWN_VOLUME;

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
