import { type CgroupTree, isCgroupVanished, type PreviousHigh, restoreMarkedHigh } from '../../cgroups/index.ts';
import { backOff, Code, type Log, messageOf, Reason, ShimError, Slots, steadyNow } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { OpenTransaction } from '../journal/open-transaction.ts';
import type { Identity, PodJournal } from '../journal/pod-journal.ts';
import type { JournalledTransaction, PodRecord } from '../journal/record.ts';
import type { Node } from '../node.ts';
import { MEMORY_HIGH } from '../plan/memory-qos-change.ts';
import { describeStep, type Step } from '../plan/step.ts';
import { declarePod } from '../pods/declare-pod.ts';
import { podName } from '../pods/names.ts';
import { lockKeyOf, newestSandbox } from '../pods/pod-identity.ts';
import { hasPodCgroup, readPod, readVolumes } from '../pods/read-pod.ts';
import { journalAllVolumes, journalVolumes, observeVolumes, recordRemounts } from '../volumes/volume-tracking.ts';
import { PodActions } from './actions.ts';
import { logForeign, settleUpdate } from './container-step.ts';
import type { OnHigh } from './lower-memory.ts';
import { progressOf } from './step-progress.ts';
import type { StepActions } from './transaction.ts';

/**
 * How long a recovery waits for the runtime's answer about one container. The next one waits twice as long, so that a
 * recovery can end even if the runtime is slow. A request waits as long as the first one.
 */
const SETTLE_MS = { first: 1500, longest: 24_000 };

/** Maximum number of pods recovered concurrently. A pod whose runtime does not answer does not delay the others. */
const MAX_CONCURRENT_PODS = 8;

type Outcome = 'finished' | 'undone' | 'gone';

/**
 * Ends a transaction that a crash or a failed rollback has left unfinished. The kernel shows which steps were applied.
 * If all were, only the journal's entry is removed; otherwise the applied steps are rolled back. A value that is
 * neither the old nor the new one was written by another process since (kubelet, for example) and stays.
 *
 * The caller holds the pod's lock. Throws UNDO_FAILED when a step cannot be rolled back: the pod stays marked. If a
 * failed read leaves unknown whether all steps are applied, throws UNDO_FAILED without marking the pod: the next
 * attempt may find that they are. Ends an unfinished hold of the pod as well, and throws the errors of reading and
 * writing memory.high, and JOURNAL_UNAVAILABLE.
 */
export async function recoverPod(node: Node, pod: PodDescription): Promise<void> {
  const transaction = node.journal.transactionOf(pod);
  try {
    if (transaction !== undefined) await recoverTransaction(node, pod, transaction);
  } finally {
    await endHold(node, pod, transaction?.highs ?? []);
  }
}

async function recoverTransaction(node: Node, pod: PodDescription, transaction: JournalledTransaction): Promise<void> {
  // The other steps are rolled back as far as possible, without asking the runtime under the lock.
  if (transaction.failed !== undefined && transaction.steps.some((step) => isUnanswered(node.journal, pod, step))) {
    if (hasPodCgroup(pod)) await restoreHighs(node.tree, transaction);
    throw notRolledBack(pod, transaction.failed);
  }
  const open = node.journal.reopen(pod);
  // Once a rollback has begun, the caller gets an error: the transaction must not end as applied.
  let isRollback = transaction.undoing || transaction.failed !== undefined;
  try {
    let outcome: Outcome = 'gone';
    if (hasPodCgroup(pod)) {
      await restoreHighs(node.tree, transaction);
      isRollback ||= !(await isApplied(node, pod, transaction.steps));
      outcome = isRollback ? 'undone' : 'finished';
      if (isRollback) await rollBack(node, pod, transaction, (...high) => open.lowersHigh(...high));
    }
    await endRecovery(node, pod, transaction, open, outcome);
  } catch (error) {
    if (isCgroupVanished(error)) {
      node.counters.recovery('gone');
      node.journal.unanswered.forget(pod.sandboxId);
      await open.end('undone', node.policies.records(pod.sandboxId));
      restoreAdmitted(node, pod);
      return;
    }
    node.counters.recovery('failed');
    const why = messageOf(error);
    node.log.error({ pod: pod.sandboxId, transaction: transaction.id, error: why }, 'resize rollback failed');
    // Otherwise all steps may be applied, and the next attempt compares them again.
    if (isRollback) await open.failed(why);
    throw notRolledBack(pod, why, error);
  }
}

function notRolledBack(pod: PodDescription, why: string, cause?: unknown): ShimError {
  const message = `pod ${podName(pod)}: an earlier resize could not be rolled back: ${why}`;
  return new ShimError(Code.INTERNAL, Reason.UNDO_FAILED, message, { pod: pod.metadata.uid }, { cause });
}

/**
 * Restores the memory.high of a hold after a crash.
 * @param newer the values that a transaction that began later has restored
 */
async function endHold(
  { journal, tree, log }: Node,
  pod: PodDescription,
  newer: readonly PreviousHigh[],
): Promise<void> {
  const holds = journal.holdsOf(pod);
  if (holds.length === 0) return;
  for (const high of holds)
    if (!newer.some(({ cgroup }) => cgroup === high.cgroup)) await restoreMarkedHigh(tree, high);
  await journal.setHolds(pod, []);
  log.info({ pod: pod.sandboxId, uid: pod.metadata.uid }, 'memory.high of an unfinished hold restored');
}

async function endRecovery(
  node: Node,
  pod: PodDescription,
  transaction: JournalledTransaction,
  open: OpenTransaction,
  outcome: Outcome,
): Promise<void> {
  if (outcome === 'finished') node.policies.adopt(pod.sandboxId, Object.entries(transaction.allocated ?? {}));
  if (outcome !== 'gone') recordRemounts(node, pod, transaction.steps);
  // The kernel and the runtime have the values of its updates, or the pod was removed: no update can arrive any more.
  for (const step of transaction.steps)
    if (step.kind === 'container') node.journal.unanswered.settled(pod.sandboxId, step.id);
  // The transaction has ended even if the disk fails: the journal retries the write.
  const ended = open.end(outcome === 'finished' ? 'done' : 'undone', node.policies.records(pod.sandboxId));
  await ended.catch((error: unknown) => {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'outcome of a resize not journalled');
  });
  restoreAdmitted(node, pod);
  if (outcome !== 'gone') await checkVolumesAgain(node, pod);
  node.counters.recovery(outcome);
  node.log.warn({ pod: pod.sandboxId, transaction: transaction.id, outcome }, 'unfinished resize recovered');
}

/** Counts the requests of the pod that the journal has after the recovery. */
function restoreAdmitted({ admitted, journal }: Node, pod: PodDescription): void {
  const key = lockKeyOf(pod);
  admitted.restore(key, journal.admitted().get(key));
}

/**
 * Compares the pod's volumes with the journal, which is skipped while a transaction is unfinished. Never rejects: the
 * transaction has ended even if the pod cannot be read, and the next request compares them again.
 */
async function checkVolumesAgain(node: Node, pod: PodDescription): Promise<void> {
  try {
    const volumes = readVolumes(node.volumes, pod);
    const { memory } = await readPod(node.tree, pod, []);
    observeVolumes(node, pod, volumes, memory);
    await journalVolumes(node, pod);
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'volumes not compared after a recovery');
  }
}

/** Recovers a pod before a request. The request continues with the pod as it is when that fails. */
export async function tryRecoverPod(node: Node, pod: PodDescription): Promise<void> {
  await node.journal.restored();
  await recoverPod(node, pod).catch(() => undefined);
}

/**
 * Waits for the updates of a pod's containers that the runtime has not answered, each as long as {@link SETTLE_MS}
 * says. The caller does not hold the pod's lock, so that a runtime that hangs does not delay the pod's other calls.
 * Never rejects: the next recovery waits again for updates that did not settle.
 *
 * @param requestUntil the deadline of a request, by {@link steadyNow}; undefined for a recovery
 */
export async function settleUpdates(node: Node, pod: PodDescription, requestUntil?: number): Promise<void> {
  await Promise.all(
    node.journal.unanswered.of(pod.sandboxId).map(async (update) => {
      // The update in progress settles the earlier ones once it is answered.
      if (node.calls.isHeld(update.id)) return;
      const { unanswered } = node.journal;
      const waits = requestUntil === undefined ? unanswered.waitsFor(pod.sandboxId, update.id) : 0;
      const until = steadyNow() + backOff(waits + 1, SETTLE_MS.first, SETTLE_MS.longest);
      const options = { deadline: Math.min(until, requestUntil ?? Infinity) };
      const settle = (): Promise<boolean> => settleUpdate(node, pod, update, options);
      try {
        if (await node.calls.run(update.id, settle)) unanswered.settled(pod.sandboxId, update.id);
        else if (requestUntil === undefined && steadyNow() >= until) unanswered.waited(pod.sandboxId, update.id);
      } catch (error) {
        const fields = { pod: pod.sandboxId, container: update.id, error: messageOf(error) };
        node.log.warn(fields, 'update without an answer may still arrive');
      }
    }),
  );
}

/**
 * KEP-1287, restart tolerance. Runs at the start and after each reconnect: compares the registry with the backend, then
 * recovers all pods with an unfinished transaction. Leaves out a pod whose lock is held: a request may hold it for
 * minutes, and the transaction may be its own. Never rejects. Returns whether all pods were recovered and none was left
 * out.
 */
export async function recover(node: Node): Promise<boolean> {
  const start = performance.now();
  await node.journal.restored();
  const isCompared = await node.registry.recover();
  const slots = new Slots(MAX_CONCURRENT_PODS);
  const others = node.registry.pods.filter((pod) => !node.journal.isUnfinished(pod));
  const settled = Promise.all(others.map((pod) => settleUpdates(node, pod)));
  const recoveries = node.journal.unfinished().map((record) => recoverRecord(node, slots, record, isCompared));
  const results = await Promise.all(recoveries);
  await settled;
  const hasFailed = !isCompared || results.includes('failed');
  if (!hasFailed) await forgetDeleted(node);
  const isJournalled = await journalAllVolumes(node);
  const complete = !hasFailed && !results.includes('busy') && isJournalled;
  node.log.info({ complete, ms: Math.round(performance.now() - start) }, 'recovery finished');
  return complete;
}

/** Recovers the pod of a record, unless its lock is held. Never rejects. */
async function recoverRecord(
  node: Node,
  slots: Slots,
  record: Identity,
  isCompared: boolean,
): Promise<'recovered' | 'busy' | 'failed'> {
  try {
    const pod = await slots.run(() => sandboxOf(node, record));
    if (pod !== undefined) {
      // Outside of the slots, so that a runtime that does not answer for one pod does not delay the others.
      await settleUpdates(node, pod);
      return await slots.run(() => recoverUnheld(node, pod));
    }
    // Otherwise the pod may have an unknown sandbox, or kubelet, which still has its folder, creates another one.
    if (isCompared && !node.volumes.hasPodFolder(record.podUid)) await node.journal.forget(record);
    return 'recovered';
  } catch (error) {
    node.log.warn({ pod: record.sandboxId, error: messageOf(error) }, 'unfinished resize not recovered');
    return 'failed';
  }
}

async function recoverUnheld(node: Node, pod: PodDescription): Promise<'recovered' | 'busy'> {
  if (node.lock.isHeld(lockKeyOf(pod))) return 'busy';
  await node.lock.run(lockKeyOf(pod), () => recoverPod(node, pod));
  return 'recovered';
}

/**
 * Returns the sandbox of a record. If it was removed, returns the pod's newest sandbox: kubelet creates another sandbox
 * when one has ended, and removes the ended one later. Both have the pod's cgroup and volumes. Undefined when the
 * registry knows none.
 */
async function sandboxOf(
  { registry, journal }: Node,
  { podUid, sandboxId }: Identity,
): Promise<PodDescription | undefined> {
  const pod = await registry.pod(sandboxId);
  if (pod !== undefined) return pod;
  // The containers of the sandbox are gone with it.
  journal.unanswered.forget(sandboxId);
  return newestSandbox(registry, podUid);
}

async function restoreHighs(
  tree: CgroupTree,
  { steps, highs }: Pick<JournalledTransaction, 'steps' | 'highs'>,
): Promise<void> {
  for (const high of highs) if (!isAtStep(tree, high, steps)) await restoreMarkedHigh(tree, high);
}

/**
 * Restores each memory.high that an earlier shim has left lowered, for a shim that forwards every call and recovers
 * nothing. The records stay unchanged for the next shim that recovers. Never rejects: logs what cannot be restored.
 */
export async function restoreLeftHighs(tree: CgroupTree, log: Log, records: readonly PodRecord[]): Promise<void> {
  for (const { podUid, transaction: { steps, highs } = { steps: [], highs: [] }, holds = [] } of records) {
    const older = holds.filter(({ cgroup }) => !highs.some((high) => high.cgroup === cgroup));
    for (const high of [...highs, ...older]) {
      try {
        await restoreHighs(tree, { steps, highs: [high] });
      } catch (error) {
        const fields = { uid: podUid, cgroup: high.cgroup, error: messageOf(error) };
        log.warn(fields, 'memory.high of an unfinished resize not restored');
      }
    }
  }
}

/** Whether all steps are applied. */
async function isApplied(node: Node, pod: PodDescription, steps: readonly Step[]): Promise<boolean> {
  const state = await readPod(node.tree, pod, readVolumes(node.volumes, pod));
  for (const step of steps) if (!(await progressOf(node, pod, state, step)).isComplete) return false;
  return true;
}

/**
 * Rolls the applied steps back, the last one first. A failed read stops the rollback between two steps, like a crash:
 * the planned order keeps the limits safe there, and the remaining steps stay in the journal for the next attempt.
 * Continuing without knowing one step would not be safe. A step that fails does not stop the others, which then take
 * its failure into account. An update that the runtime has not answered fails: it may still arrive.
 */
async function rollBack(
  node: Node,
  pod: PodDescription,
  { steps }: JournalledTransaction,
  onHigh: OnHigh,
): Promise<void> {
  const updates = steps.filter((step) => step.kind === 'container');
  // Includes containers that do not run: they need their limits too.
  const declared = updates.length === 0 ? undefined : await declarePod(node, pod);
  const actions = new PodActions(node, pod, { updates, declared, onHigh });
  const failures: string[] = [];
  for (const step of steps.toReversed()) {
    // Compared again: a step of an earlier transaction is visible only once the later ones are rolled back.
    const now = await readPod(node.tree, pod, readVolumes(node.volumes, pod));
    const isOpen = isUnanswered(node.journal, pod, step);
    const { written, foreign } = isOpen ? { written: step } : await progressOf(node, pod, now, step);
    if (written !== undefined) await rollBackStep(actions, written, failures);
    if (foreign !== undefined) logForeign(node.log, pod, foreign);
  }
  if (failures.length > 0) throw new Error(failures.join('; '));
}

const isUnanswered = (journal: PodJournal, { sandboxId }: PodDescription, step: Step): boolean =>
  step.kind === 'container' && journal.unanswered.of(sandboxId).some(({ id }) => id === step.id);

async function rollBackStep(actions: StepActions, step: Step, failures: string[]): Promise<void> {
  try {
    await actions.rollBack(step);
  } catch (error) {
    failures.push(`${describeStep(step)}: ${messageOf(error)}`);
  }
}

/** Whether a step of the transaction has set the cgroup's memory.high. The value may have the mark by chance. */
function isAtStep(tree: CgroupTree, { cgroup }: PreviousHigh, steps: readonly Step[]): boolean {
  const asked = steps.flatMap((step) => {
    if (step.kind === 'pod-unified') return step.key === MEMORY_HIGH ? [step.to] : [];
    return step.kind === 'container' ? (step.settings?.[MEMORY_HIGH]?.to ?? []) : [];
  });
  try {
    const found = String(tree.readHigh(cgroup));
    return asked.some((to) => tree.holdsSetting(MEMORY_HIGH, to, found) === true);
  } catch (error) {
    if (isCgroupVanished(error)) return false;
    throw error;
  }
}

/**
 * Removes journal entries of pods that were deleted while the shim was away: the runtime has no sandbox of them, and
 * kubelet no folder. Both are required, since either may appear later than the other, for example after a reboot. The
 * registry has just been compared with the backend. Never rejects: entries that cannot be removed are tried again the
 * next time.
 */
export async function forgetDeleted({ journal, registry, volumes, admitted, log }: Node): Promise<void> {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  for (const { podUid, sandboxId } of journal.identities()) {
    try {
      if (uids.has(podUid) || volumes.hasPodFolder(podUid)) continue;
      if (registry.pods.some((pod) => pod.sandboxId === sandboxId)) continue;
      admitted.forget(podUid);
      await journal.forget({ podUid, sandboxId });
      log.info({ uid: podUid }, 'journal entry of a deleted pod removed');
    } catch (error) {
      log.warn({ uid: podUid, error: messageOf(error) }, 'journal entry of a deleted pod not removed');
    }
  }
}
