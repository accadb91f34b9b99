import type { Node } from '../node.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { type Bytes, Code, Reason, ShimError, isRollbackFailure, messageOf, steadyNow } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type CallersUpdate, PodActions, isInUse } from './actions.ts';
import { type StepActions, isLeft, journalled, runTransaction, tolerateJournalFailure } from './transaction.ts';
import { type OnHigh, reclaimBy } from './lower-memory.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import { type ContainerStep, type PodTarget, type Step, type StepRecord, describeStep } from '../plan/step.ts';
import { type KnownValues, knownOf } from '../plan/value-changes.ts';
import { compareLimits } from '../plan/amounts.ts';
import { lateError } from '../plan/failures.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import type { Registry } from '../pods/registry.ts';
import { podCgroup } from '../pods/read-pod.ts';
import type { OpenTransaction } from '../journal/open-transaction.ts';
import type { RequestedVolume } from '../journal/record.ts';
import type { RecentResizes, Recording } from '../history/recent-resizes.ts';
import { warnAboutExcess } from '../volumes/policies.ts';
import { plan } from '../plan/steps.ts';

export interface PerformOptions {
  /** The caller's own call, if the target has one. It calls `onHigh` before it lowers memory.high; without it, it must not lower that. */
  readonly call?: (onHigh: OnHigh | undefined) => Promise<void>;
  /** What this call sets: its changes are for the journal. */
  readonly asked?: CallersUpdate;
  /** The requested volume sizes. They hold from now on, also when a volume is mounted again. */
  readonly sizes?: ReadonlyMap<string, RequestedVolume>;
  /** Updates of containers that do not run: the runtime stores the values, no cgroup changes. */
  readonly stored?: readonly ContainerStep[];
  /** Until when memory may be reclaimed, in milliseconds of the steady clock. */
  readonly until?: number;
  /** The deadline of the transaction, by {@link steadyNow}. */
  readonly deadline?: number;
  /** Returns why a step that is due must not be applied any more. */
  readonly refuse?: (step: Step) => Error | undefined;
  /** Called when the steps begin: they are journalled. Must not throw. */
  readonly onBegin?: () => void;
  /** Called after each applied step. Must not throw. */
  readonly onStep?: ((record: StepRecord) => void) | undefined;
  /** Called with the id of a container for which a plugin of the runtime has chosen other values than requested. Must not throw. */
  readonly onChosen?: ((id: string) => void) | undefined;
}

/** Returns the steps that {@link perform} runs. Throws VOLUME_IN_USE when a volume stores more than its new size. */
export function planSteps(
  volumes: MemoryVolumes,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  stored: readonly ContainerStep[] = [],
): Step[] {
  const steps = plan(state, target, stored);
  assertVolumesFit(volumes, pod, steps);
  return steps;
}

/** Returns {@link planSteps}, and counts a rejected volume. */
function planAndCount(
  node: Node,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  stored: readonly ContainerStep[],
): Step[] {
  try {
    return planSteps(node.volumes, pod, state, target, stored);
  } catch (error) {
    if (isInUse(error)) node.counters.remount('shrink', 'refused');
    throw error;
  }
}

/**
 * Plans, admits and runs a pod's resize. The caller holds the pod's lock. Throws VOLUME_IN_USE before anything changes when a volume
 * would become smaller than what it stores (KEP-6030), otherwise what the first failing step throws, after the rollback. Returns the
 * applied steps.
 */
export async function perform(
  node: Node,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  options: PerformOptions = {},
): Promise<StepRecord[]> {
  const { call = () => Promise.resolve(), asked, stored = [], deadline = Infinity } = options;
  const changes = asked?.changes;
  const steps = planAndCount(node, pod, state, target, stored);
  const start = performance.now();
  const recording = record(node, pod, state, changes);
  const { until = reclaimBy(node.reclaimTimeout, deadline), onStep, onChosen, sizes = new Map(), refuse } = options;
  const run = (open: OpenTransaction | undefined): Promise<StepRecord[]> => {
    options.onBegin?.();
    const onHigh: OnHigh | undefined = open && ((cgroup, previous) => open.lowersHigh(cgroup, previous));
    const updates = withAsked(steps, changes).filter((step) => step.kind === 'container');
    const times = { until, deadline };
    const given = { call: () => call(onHigh), asked, updates, declared: state.declared, onHigh, onChosen, ...times };
    const actions = new PodActions(node, pod, given);
    return countRollback(node, pod, recording, () =>
      runTransaction(steps, {
        ...journalling(withinDeadline(actions, pod, deadline, refuse), node, pod, open),
        applied(record) {
          node.counters.step(record.step.kind, record.ms);
          recording?.step(record);
          node.outcomes.stepped(pod.sandboxId, record);
          onStep?.(record);
        },
      }),
    );
  };
  const values = valuesOf(target, asked?.sets);
  const sets = [...(target.containers ?? []), ...(asked ? [asked.sets] : [])];
  node.outcomes.begins(pod.sandboxId, values, knownOf(state), withAsked(steps, changes));
  const records = await node.outcomes.admit(pod.sandboxId, values, () =>
    journalled(node, pod, { steps: stepsToJournal(steps, changes), changes, sizes, state, target, sets }, run),
  );
  if (records.some(({ step }) => step.kind !== 'runtime')) {
    warnAboutExcess(node, pod, state, target);
    const ms = round(performance.now() - start);
    node.log.info({ ...podFields(pod), ms, steps: records.map(forLog) }, 'pod resized');
  }
  return records;
}

/** Returns the steps for the journal. The caller's call is replaced by its changes: a recovery cannot repeat it, but can roll it back. */
function stepsToJournal(steps: readonly Step[], asked: ContainerStep | undefined): Step[] {
  const lowers = asked?.memory !== undefined && compareLimits(asked.memory.to, asked.memory.from) < 0;
  // The runtime's call alone is not journalled, unless the shim lowers memory.high for it.
  if (!lowers && steps.every(({ kind }) => kind === 'runtime')) return [];
  return withAsked(steps, asked);
}

/** Returns the steps with the changes of the caller's call in place of the call. */
const withAsked = (steps: readonly Step[], asked: ContainerStep | undefined): Step[] =>
  steps.flatMap((step): Step[] => {
    if (step.kind !== 'runtime') return [step];
    return asked === undefined ? [] : [asked];
  });

/** Runs a transaction, and counts its rollback when it fails. */
async function countRollback<Result>(
  node: Node,
  pod: PodDescription,
  recording: Recording | undefined,
  transaction: () => Promise<Result>,
): Promise<Result> {
  try {
    const result = await transaction();
    recording?.end('done');
    return result;
  } catch (error) {
    const isFailed = isLeft(node.journal, pod, error);
    node.counters.undo(isFailed ? 'failed' : 'undone');
    recording?.end(isFailed ? 'undo failed' : 'undone', error);
    if (isFailed) node.outcomes.leftUnfinished(pod.sandboxId);
    throw error;
  }
}

/** Starts a record for the page of recent resizes. Undefined without that page. */
function record(
  {
    recent,
    tree,
    registry,
  }: { readonly registry: Registry; readonly tree: CgroupTree; readonly recent?: RecentResizes },
  pod: PodDescription,
  before: PodState,
  asked: ContainerStep | undefined,
): Recording | undefined {
  const names = new Map(registry.containersOf(pod.sandboxId).map(({ containerId, name }) => [containerId, name]));
  return recent?.begin({ pod, before, asked, names, used: () => usageOrUndefined(tree, pod) });
}

/** Reads memory.current for the page. A failed read must not fail a resize. */
function usageOrUndefined(tree: CgroupTree, pod: PodDescription): Bytes | undefined {
  try {
    return tree.readMemoryCurrent(podCgroup(pod));
  } catch (error) {
    if (error instanceof ShimError) return undefined;
    throw error;
  }
}

/** Returns the values that a transaction sets. */
function valuesOf(
  { memory, cpu, weight, containers = [], volumes }: PodTarget,
  container: ContainerLimits | undefined,
): KnownValues<Bytes> {
  const limitsOf = ({ id, memory: most, cpu: quota }: ContainerLimits): ContainerLimits => ({
    id,
    ...(most !== undefined && { memory: most }),
    ...(quota && { cpu: quota }),
  });
  const all = container === undefined ? containers : [...containers, limitsOf(container)];
  return {
    pod: { ...(memory !== undefined && { memory }), ...(cpu && { cpu }), ...(weight !== undefined && { weight }) },
    containers: new Map(all.map(({ id, ...limits }) => [id, limits])),
    volumes,
  };
}

/** Throws DEADLINE when the deadline, by {@link steadyNow}, has passed before something has begun. */
export function assertInTime(pod: PodDescription, deadline: number, what: string): void {
  if (steadyNow() >= deadline) throw lateError(pod, what);
}

/** No step begins after the deadline, or when it is refused. The rollback has no deadline. */
function withinDeadline(
  actions: StepActions,
  pod: PodDescription,
  deadline: number,
  refuse: PerformOptions['refuse'],
): StepActions {
  const refused = new Set<Step>();
  const run = (step: Step): Promise<void> => {
    const late = steadyNow() < deadline ? undefined : lateError(pod, describeStep(step));
    const refusal = refuse?.(step) ?? late;
    if (refusal === undefined) return actions.apply(step);
    refused.add(step);
    return Promise.reject(refusal);
  };
  return {
    apply: run,
    // A step that has not begun has nothing to roll back.
    rollBack: (step) => (refused.has(step) ? Promise.resolve() : actions.rollBack(step)),
    skipped: (step, error) => actions.skipped(step, error),
  };
}

/** Journals that a rollback begins, and that the memory.high of the pod could not be restored after the caller's own call. */
function journalling(
  actions: StepActions,
  node: Node,
  pod: PodDescription,
  open: OpenTransaction | undefined,
): StepActions {
  return {
    ...actions,
    rollingBack: () => tolerateJournalFailure(node.log, pod, open?.undoing()),
    skipped(step, error) {
      if (isRollbackFailure(error)) open?.leavesHigh(podCgroup(pod), messageOf(error));
      actions.skipped(step, error);
    },
  };
}

/** KEP-6030: a volume does not shrink below what it stores. Throws VOLUME_IN_USE. */
function assertVolumesFit(volumes: MemoryVolumes, pod: PodDescription, steps: readonly Step[]): void {
  const shrinking = steps.filter((step) => step.kind === 'volume').filter((step) => step.to < step.from);
  for (const { volume, from, to } of shrinking) {
    const { used, pageSize } = volumes.measure({ podUid: pod.metadata.uid, name: volume });
    // The kernel rounds the size up to whole pages.
    if (Math.ceil(used / pageSize) <= Math.ceil(to / pageSize)) continue;
    throw new ShimError(
      Code.FAILED_PRECONDITION,
      Reason.VOLUME_IN_USE,
      `volume ${volume} of pod ${pod.metadata.uid} cannot shrink from ${from} to ${to} bytes: ${used} are stored in it`,
      { pod: pod.metadata.uid, volume, asked: String(to), found: String(used) },
    );
  }
}

/** The log fields of a pod. */
const podFields = ({ sandboxId: pod, metadata: { uid, namespace, name } }: PodDescription) => ({
  pod,
  uid,
  namespace,
  name,
});

const forLog = ({ step, at, ms }: StepRecord): Readonly<Record<string, string | number>> => ({
  step: describeStep(step),
  atMs: round(at),
  ms: round(ms),
});

const round = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
