import type { Node } from '../node.ts';
import {
  type Bytes,
  Code,
  type Limit,
  type Log,
  Reason,
  ShimError,
  isRollbackFailure,
  messageOf,
} from '../../core/index.ts';
import {
  type Change,
  type ContainerStep,
  type PodTarget,
  type Step,
  type StepRecord,
  describeStep,
} from '../plan/step.ts';
import { type CgroupPath, type PreviousHigh, isCgroupVanished } from '../../cgroups/index.ts';
import { type PodDescription, isUnanswered } from '../../runtime/index.ts';
import type { ContainerLimits, PodState } from '../pods/pod-state.ts';
import { podCgroup } from '../pods/read-pod.ts';
import type { JournalledTransaction, RequestedVolume } from '../journal/record.ts';
import type { OpenTransaction } from '../journal/open-transaction.ts';
import type { PodJournal } from '../journal/pod-journal.ts';
import { compareLimits } from '../plan/amounts.ts';
import { podStepsLeft } from '../plan/pod-limits.ts';
import { isAlreadyAllocated, journalVolumes, recordRemounts } from '../volumes/volume-tracking.ts';
import { beforeAndAfter } from './container-values.ts';

/** A step that is not applied, because the pod's present state has no place for it. The others go on. */
export class StepSkipped extends Error {
  override readonly name = 'StepSkipped';
}

/** Applies and rolls back the steps of a plan. */
export interface StepActions {
  /** Applies a step and verifies it. Rejects when that fails, and with {@link StepSkipped} when nothing is changed on purpose. */
  apply(step: Step): Promise<void>;
  /** Rolls back a step that was applied, fully or partly, as far as the pod's present state allows. */
  rollBack(step: Step): Promise<void>;
  /** Called after a step is applied. */
  applied?(record: StepRecord): void;
  /** Called before the rollback begins. */
  rollingBack?(): Promise<void>;
  /** Called when a step is skipped, or fails after the caller's own call: the caller's change is applied, so the call succeeds. */
  skipped(step: Step, error: unknown): void;
}

/**
 * Runs a plan as a transaction. The first failing step stops it (KEP-1287: later containers are not touched). The failing step and
 * those before it are rolled back in reverse order, and the step's error is thrown unchanged. Throws UNDO_FAILED, with both errors,
 * when the rollback fails too.
 *
 * Steps after the caller's own call (a decrease that keeps a pod limit tight, a volume that may grow) are skipped when they fail:
 * the caller's change is applied. A plan without such a call is all or nothing.
 */
export async function runTransaction(steps: readonly Step[], actions: StepActions): Promise<StepRecord[]> {
  const start = performance.now();
  const records: StepRecord[] = [];
  for (const step of steps) {
    const at = performance.now() - start;
    try {
      await actions.apply(step);
    } catch (error) {
      if (error instanceof StepSkipped || records.some((applied) => applied.step.kind === 'runtime')) {
        actions.skipped(step, error);
        continue;
      }
      await actions.rollingBack?.();
      // Includes the failing step, which may be partly applied.
      await rollBackAll([...records.map((applied) => applied.step), step], actions, error);
      throw error;
    }
    const record = { step, at, ms: performance.now() - start - at };
    records.push(record);
    actions.applied?.(record);
  }
  return records;
}

async function rollBackAll(steps: readonly Step[], actions: StepActions, cause: unknown): Promise<void> {
  const failures: string[] = [];
  for (const step of [...steps].reverse()) {
    try {
      await actions.rollBack(step);
    } catch (error) {
      // Continue: each step that is rolled back brings the pod closer to its state before.
      failures.push(`${describeStep(step)}: ${messageOf(error)}`);
    }
  }
  if (failures.length > 0) {
    throw new ShimError(
      Code.INTERNAL,
      Reason.UNDO_FAILED,
      `${messageOf(cause)}; rollback failed too: ${failures.join('; ')}`,
      {},
      { cause },
    );
  }
}

/** What a transaction does, for the journal. */
export interface Journalled {
  /** The steps to journal. */
  readonly steps: readonly Step[];
  /** The changes of the caller's own call. */
  readonly changes: ContainerStep | undefined;
  readonly sizes: ReadonlyMap<string, RequestedVolume>;
  readonly state: PodState;
  readonly target: PodTarget;
  /** What it sets of containers, changed or not. */
  readonly sets: readonly ContainerLimits[];
}

/**
 * Runs a transaction with its steps in the journal. Without steps nothing can be left unfinished, but an update that the runtime has not
 * answered. A requested size that a volume has already is journalled too, so that it holds later.
 */
export async function journalled(
  node: Node,
  pod: PodDescription,
  all: Journalled,
  run: (open: OpenTransaction | undefined) => Promise<StepRecord[]>,
): Promise<StepRecord[]> {
  const { policies, journal } = node;
  const { steps, sizes } = all;
  const known = (): ReturnType<typeof policies.records> => policies.records(pod.sandboxId);
  const earlier = journal.transactionOf(pod);
  if (steps.length === 0 && isAlreadyAllocated(known(), sizes)) return unjournalled(node, pod, all, run);
  const highs = await previousHighs(node, pod, steps);
  const open = await journal.begin(pod, steps, { volumes: known(), asked: sizes, highs });
  const both = [...(earlier?.steps ?? []), ...steps];
  try {
    const records = await run(open);
    policies.adopt(pod.sandboxId, sizes);
    recordRemounts(node, pod, both);
    await tolerateJournalFailure(
      node.log,
      pod,
      open.end('done', known(), leftToSettle(node.journal, pod, earlier, all)),
    );
    return records;
  } catch (error) {
    const isMarked = isLeft(node.journal, pod, error);
    if (!isMarked) recordRemounts(node, pod, both);
    await tolerateJournalFailure(node.log, pod, isMarked ? open.failed(messageOf(error)) : open.end('undone', known()));
    throw error;
  }
}

/** Runs a transaction without steps to journal. An update without an answer is journalled afterwards: it is rolled back later. */
async function unjournalled(
  node: Node,
  pod: PodDescription,
  all: Journalled,
  run: (open: OpenTransaction | undefined) => Promise<StepRecord[]>,
): Promise<StepRecord[]> {
  const { policies, journal } = node;
  const volumes = (): ReturnType<typeof policies.records> => policies.records(pod.sandboxId);
  const earlier = journal.transactionOf(pod);
  try {
    const records = await run(undefined);
    // This request replaces an earlier transaction whose rollback failed.
    if (earlier === undefined) await journalVolumes(node, pod);
    else {
      recordRemounts(node, pod, earlier.steps);
      const left = leftToSettle(node.journal, pod, earlier, all);
      await tolerateJournalFailure(node.log, pod, journal.reopen(pod).end('done', volumes(), left));
    }
    return records;
  } catch (error) {
    if (all.changes !== undefined && isLeft(node.journal, pod, error)) {
      const mark = async (step: ContainerStep): Promise<void> =>
        (await journal.begin(pod, [step], { volumes: volumes() })).failed(messageOf(error));
      await tolerateJournalFailure(node.log, pod, mark(all.changes));
    }
    throw error;
  }
}

/** Whether something of a failed transaction is left to roll back: a step, or the caller's own update, which may still arrive. */
export const isLeft = (journal: PodJournal, { sandboxId }: PodDescription, error: unknown): boolean =>
  isRollbackFailure(error) || (isUnanswered(error) && journal.unanswered.of(sandboxId).length > 0);

/**
 * Returns what is left of an earlier transaction once another one is done, whose values replace the earlier ones: the updates that the
 * runtime has not answered, and the pod limits without the room for them.
 */
function leftToSettle(
  journal: PodJournal,
  { sandboxId }: PodDescription,
  earlier: JournalledTransaction | undefined,
  { state, target, sets }: Journalled,
): Step[] {
  const steps = earlier?.steps ?? [];
  const left = journal.unanswered.left(sandboxId, steps, sets);
  if (left.length === 0) return [];
  const unanswered = journal.unanswered.of(sandboxId);
  const settled = new Map<string, ContainerLimits>();
  // A container's first step has the values from before all of them.
  for (const step of left.toReversed()) settled.set(step.id, { ...settled.get(step.id), ...beforeAndAfter(step).from });
  const updates = { steps, unanswered, settled: [...settled.values()] };
  return [...podStepsLeft(state, { ...target, containers: sets }, updates), ...left];
}

/** A failed journal write is not fatal here: the recovery at the next start reads the kernel again. */
export async function tolerateJournalFailure(
  log: Log,
  pod: PodDescription,
  written: Promise<void> | undefined,
): Promise<void> {
  try {
    await written;
  } catch (error) {
    log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'outcome of a resize not journalled');
  }
}

/** Returns memory.high of each cgroup in which these steps may lower it, for the journal. */
async function previousHighs(
  node: Node,
  pod: PodDescription,
  steps: readonly Step[],
): Promise<readonly PreviousHigh[]> {
  const highs: PreviousHigh[] = [];
  for (const step of steps) {
    const cgroup = await loweredCgroup(node, pod, step);
    if (cgroup === undefined) continue;
    try {
      highs.push({ cgroup, memoryHigh: node.tree.readHigh(cgroup) });
    } catch (error) {
      // The cgroup has ended: nothing will be lowered there.
      if (!isCgroupVanished(error)) throw error;
    }
  }
  return highs;
}

async function loweredCgroup(node: Node, pod: PodDescription, step: Step): Promise<CgroupPath | undefined> {
  if (step.kind === 'pod-memory') return isLowering(step) ? podCgroup(pod) : undefined;
  if (step.kind !== 'container' || step.memory === undefined || !isLowering(step.memory)) return undefined;
  return node.cgroups.running(pod, step.id);
}

const isLowering = ({ from, to }: Change<Limit<Bytes>>): boolean => compareLimits(to, from) < 0;
