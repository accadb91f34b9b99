import { type CgroupTree, isCgroupVanished } from '../../cgroups/index.ts';
import { Code, Reason, ShimError, messageOf } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { StepActions } from './transaction.ts';
import { forgetDeleted } from './deleted-pods.ts';
import { type PodActionsParts, actionsFor } from './pod-actions.ts';
import { type Progress, progressOf } from './progress.ts';
import type { OnHigh } from './lower-memory.ts';
import { hasPodCgroup, podName, readPod, readVolumes } from '../../sandbox/index.ts';
import { type KnownVolumesParts, keepAllVolumes, keepVolumes, meetVolumes, remountsEnded } from '../volumes/index.ts';
import { type Step, describeStep } from '../model/index.ts';
import type { JournalledTransaction, PreviousHigh } from '../journal/index.ts';

export interface RecoverParts extends PodActionsParts, KnownVolumesParts {}

/**
 * Ends a transaction that was cut off: by a crash, or by an undo that failed. The kernel is asked how far it came: all done,
 * and only the journal's entry goes; else what was done is taken back. A value that is neither the old nor the new one
 * has been written by somebody else since (kubelet, say) and is left alone.
 *
 * The pod's lock is held. Throws UNDO_FAILED when something could not be taken back: the pod stays marked.
 */
export async function recoverPod(
  context: Pick<
    RecoverParts,
    | 'registry'
    | 'backend'
    | 'journal'
    | 'tree'
    | 'volumes'
    | 'policies'
    | 'outcomes'
    | 'calls'
    | 'cgroups'
    | 'reclaimTimeout'
    | 'log'
    | 'counters'
    | 'procRoot'
  >,
  pod: PodDescription,
): Promise<void> {
  const transaction = context.journal.transactionOf(pod);
  if (transaction === undefined) return;
  const open = context.journal.reopen(pod);
  try {
    const outcome = hasPodCgroup(pod)
      ? await finishOrRollBack(context, pod, transaction, (cgroup, previous) => open.lowersHigh(cgroup, previous))
      : 'gone';
    if (outcome === 'finished') context.policies.adopt(pod.sandboxId, Object.entries(transaction.allocated ?? {}));
    if (outcome !== 'gone') remountsEnded(context, pod, transaction.steps);
    await open.end(outcome === 'finished' ? 'done' : 'undone', context.policies.records(pod.sandboxId));
    if (outcome !== 'gone') await checkVolumesAgain(context, pod);
    context.counters.recovery(outcome);
    context.log.warn({ pod: pod.sandboxId, transaction: transaction.id, outcome }, 'unfinished resize recovered');
  } catch (error) {
    if (isCgroupVanished(error)) {
      context.counters.recovery('gone');
      await open.end('undone', context.policies.records(pod.sandboxId));
      return;
    }
    context.counters.recovery('failed');
    const why = messageOf(error);
    context.log.error({ pod: pod.sandboxId, transaction: transaction.id, error: why }, 'resize rollback failed');
    await open.failed(why);
    throw new ShimError(
      Code.INTERNAL,
      Reason.UNDO_FAILED,
      `pod ${podName(pod)}: an earlier resize could not be rolled back: ${why}`,
      { pod: pod.metadata.uid },
      { cause: error },
    );
  }
}

/** Volumes that were not looked at as long as the transaction was unfinished. */
async function checkVolumesAgain(
  context: Pick<RecoverParts, 'journal' | 'tree' | 'volumes' | 'policies' | 'outcomes' | 'log'>,
  pod: PodDescription,
): Promise<void> {
  const volumes = readVolumes(context.volumes, pod);
  const { memory } = await readPod(context.tree, pod, []);
  meetVolumes(context, pod, volumes, memory);
  await keepVolumes(context, pod);
}

/** The same before a request: it goes on with the pod as it is, where that could not be mended. */
export async function tryRecoverPod(
  context: Pick<
    RecoverParts,
    | 'registry'
    | 'backend'
    | 'journal'
    | 'tree'
    | 'volumes'
    | 'policies'
    | 'outcomes'
    | 'calls'
    | 'cgroups'
    | 'reclaimTimeout'
    | 'log'
    | 'counters'
    | 'procRoot'
  >,
  pod: PodDescription,
): Promise<void> {
  await context.journal.restored();
  await recoverPod(context, pod).catch(() => undefined);
}

/**
 * At a start and after each reconnect: what is known is compared with the backend, then all that was cut off is ended. Never
 * rejects: gives whether all of it could be done.
 */
export async function recover(context: RecoverParts): Promise<boolean> {
  const start = performance.now();
  await context.journal.restored();
  let done = await context.registry.recover();
  for (const { podUid, sandboxId } of context.journal.unfinished()) {
    try {
      const pod = await context.registry.pod(sandboxId);
      if (pod === undefined) await context.journal.forget({ podUid, sandboxId });
      else await context.lock.run(sandboxId, () => recoverPod(context, pod));
    } catch (error) {
      context.log.warn({ pod: sandboxId, error: messageOf(error) }, 'unfinished resize not recovered');
      done = false;
    }
  }
  if (done) await forgetDeleted(context);
  await keepAllVolumes(context);
  context.log.info({ complete: done, ms: Math.round(performance.now() - start) }, 'recovery finished');
  return done;
}

async function finishOrRollBack(
  context: PodActionsParts,
  pod: PodDescription,
  { steps, highs, undoing, failed }: JournalledTransaction,
  onHigh: OnHigh,
): Promise<'finished' | 'undone'> {
  for (const high of highs) await restoreHigh(context, high);
  const state = await readPod(context.tree, pod, readVolumes(context.volumes, pod));
  const progress: Progress[] = [];
  for (const step of steps) progress.push(await progressOf(context, pod, state, step));
  // Once it was being undone its caller has had, or will have had, an error: it may not be done after all.
  if (progress.every(({ isComplete }) => isComplete) && !undoing && failed === undefined) return 'finished';
  const updates = steps.filter((step) => step.kind === 'container');
  const actions = actionsFor(context, pod, { updates, onHigh });
  const failures: string[] = [];
  for (const { written } of progress.reverse())
    if (written !== undefined) await rollBackStep(actions, written, failures);
  if (failures.length > 0) throw new Error(failures.join('; '));
  return 'undone';
}

async function rollBackStep(actions: StepActions, step: Step, failures: string[]): Promise<void> {
  try {
    await actions.rollBack(step);
  } catch (error) {
    failures.push(`${describeStep(step)}: ${messageOf(error)}`);
  }
}

async function restoreHigh(
  context: { readonly tree: CgroupTree },
  { cgroup, memoryHigh }: PreviousHigh,
): Promise<void> {
  try {
    await context.tree.write(cgroup, { file: 'memory.high', value: memoryHigh });
  } catch (error) {
    if (!isCgroupVanished(error)) throw error;
  }
}
