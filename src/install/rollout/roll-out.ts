import { messageOf, pause, version } from '../../core/index.ts';
import { passedAsCanary } from './canary.ts';
import { EVENT_MS, labelled, posted, REMOVING, type RolloutContext } from './context.ts';
import { driftToRepair, reportRepaired } from './drift.ts';
import type { Reason } from './events.ts';
import { type CommandResult, hasChanges, NoSystemd, type Outcome, outcomeOf } from './host.ts';
import type { ClusterNode } from './node.ts';
import { loggingChanges, retry, retryDelay } from './retry.ts';
import { type Turn, takeTurn, unfinishedTurn } from './turns.ts';

/**
 * Installs the shim in the turn of this node, then waits for the signal. If everything is in place, as after a restart
 * of the pod, it takes no turn. First waits for a random time, because a release replaces the pods of all nodes at
 * once. If kubelet stops using the shim, reports it, and installs the shim again if configured. Rejects only with the
 * reason of the signal.
 * @param end aborts when the grace period is over
 */
export async function keepInstalled(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<never> {
  await context.markReady(false);
  const { clock, random, times } = context;
  await pause(clock, Math.round(times.spread * random()), stop);
  let hasDrifted = false;
  for (let earliest = 0; ; earliest = context.clock.now() + context.times.retry) {
    await install(context, stop, end);
    if (hasDrifted) await reportRepaired(context, stop);
    if (await passedAsCanary(context, earliest, stop)) await driftToRepair(context, earliest, stop);
    hasDrifted = true;
  }
}

async function install(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<void> {
  const { say, markReady, random } = context;
  await markReady(false);
  for (let tries = 1; ; tries += 1) {
    const outcome = await installed(context, stop, end);
    if (outcome.kind === 'done') break;
    if (outcome.kind === 'refused') await unstaged(context);
    stop.throwIfAborted();
    const isShort = outcome.kind === 'failed' || (outcome.kind === 'refused' && outcome.isBusy === true);
    await pause(context.clock, isShort ? retryDelay(tries, random()) : context.times.retry, stop);
  }
  await unstaged(context);
  await labelled(context, version, end);
  await markReady(true);
  say('the shim is installed');
}

async function installed(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<Outcome> {
  const { host, installFlags } = context;
  const unfit = await idleOrUnfit(context, stop);
  if (unfit !== undefined) return reported(context, 'ShimInstallRefused', { kind: 'refused', why: unfit.message }, end);
  const looked = await attempted(async () => {
    await context.stage();
    return host.resizectl(['install', '--dry-run', ...installFlags]);
  });
  const fit = outcomeOf(looked);
  if (fit.kind !== 'done') return reported(context, 'ShimInstallRefused', { kind: 'refused', why: fit.why }, end);
  const isThere = !hasChanges(looked);
  const turn = isThere ? await unfinishedTurnOf(context, stop) : await newTurn(context, stop);
  if (turn === undefined) return fit;
  // From here on the installation is completed even if kubelet restarts or the stop signal arrives.
  const ended = isThere ? looked : await attempted(() => host.resizectl(['install', ...installFlags]));
  const outcome = outcomeOf(ended);
  const result = await readyAgain(context, outcome, end);
  await turn.end(end, result.kind === 'failed' ? result.why : undefined);
  if (result.kind === 'done') return reported(context, 'ShimInstalled', result, end);
  if (result.kind === 'gone') {
    context.say(result.why);
    return result;
  }
  return reported(context, result.kind === 'refused' ? 'ShimInstallRefused' : 'ShimInstallFailed', result, end);
}

/** Waits until the host is idle. Returns the reason if the shim cannot be on it. */
async function idleOrUnfit({ host }: RolloutContext, signal: AbortSignal): Promise<NoSystemd | undefined> {
  try {
    await host.idle(signal);
    return undefined;
  } catch (error) {
    if (error instanceof NoSystemd) return error;
    throw error;
  }
}

async function newTurn(context: RolloutContext, stop: AbortSignal): Promise<Turn> {
  await readyNow(context, stop);
  const turn = await takeTurn(context.turns, 'install', stop);
  context.say('it is the turn of this node');
  return turn;
}

/** Returns the turn of an earlier pod that was killed, if any: other nodes wait for its end. */
async function unfinishedTurnOf(context: RolloutContext, stop: AbortSignal): Promise<Turn | undefined> {
  const soon = AbortSignal.any([stop, AbortSignal.timeout(EVENT_MS)]);
  // If the Lease cannot be read, the turn expires with it.
  return unfinishedTurn(context.turns, soon).catch(() => undefined);
}

/**
 * Runs when the pod ends. Uninstalls the shim if the label was removed. If the node has the label, or the API server
 * does not answer, the shim stays: a pod also ends on an upgrade of the DaemonSet or a drain. Rejects only with the
 * reason of the signal.
 */
export async function leave(context: RolloutContext, end: AbortSignal): Promise<void> {
  const { say, readNode, hasLabel } = context;
  const answer = AbortSignal.any([end, AbortSignal.timeout(context.times.answer)]);
  let node: ClusterNode | undefined;
  try {
    node = await retry('this node cannot be read', context, answer, readNode);
  } catch {
    say('the API server did not return the labels of this node: the shim stays installed');
    return;
  }
  if (node === undefined || node.isEnding) say(LEAVING);
  else if (hasLabel(node.labels)) say('this node has the label: the shim stays installed');
  else await uninstall(context, end);
  await unstageIdle(context);
}

const LEAVING = 'this node is being removed from the cluster: the shim stays installed';

/** Removes the staged program unless a unit on the host still runs it. */
async function unstageIdle(context: RolloutContext): Promise<void> {
  const isIdle = await context.host.idle(AbortSignal.timeout(SOON_MS)).then(
    () => true,
    () => false,
  );
  if (isIdle) await unstaged(context);
}

/** Removes the staged program. One that stays is reported, and is removed by the next pod of this node. */
async function unstaged({ unstage, say }: RolloutContext): Promise<void> {
  await unstage().catch((error: unknown) => say(`the staged program was not removed: ${messageOf(error)}`));
}

/** The progress of a removal. */
interface Removal {
  turn?: Turn;
  /** The result of resizectl. */
  outcome?: Outcome;
}

async function uninstall(context: RolloutContext, end: AbortSignal): Promise<void> {
  const removal: Removal = {};
  context.say('the label was removed: uninstalling the shim');
  try {
    await context.markReady(false);
    await remove(context, removal, end);
  } catch (error) {
    await reportUnfinished(context, removal, error, end);
  }
}

/** Uninstalls the shim in the turn of this node. Records the progress in `removal`. */
async function remove(context: RolloutContext, removal: Removal, end: AbortSignal): Promise<void> {
  const { host, say, uninstallFlags } = context;
  if ((await idleOrUnfit(context, end)) !== undefined) return notInstalled(context, end);
  let isStaged = false;
  const looked = await attempted(async () => {
    await context.stage();
    isStaged = true;
    return host.resizectl(['uninstall', '--dry-run', ...uninstallFlags]);
  });
  const fit = outcomeOf(looked);
  if (fit.kind === 'done' && !hasChanges(looked)) return notInstalled(context, end);
  const turn = (removal.turn = await takeTurn(context.turns, 'uninstall', end));
  const stays = await staysInstalled(context, end);
  if (stays !== undefined) {
    await turn.end(end);
    say(stays);
    return;
  }
  // Only a successful removal deletes the label: `restore` waits for that (docs/kubernetes.md).
  await labelled(context, REMOVING, end);
  // Reported before the restart of kubelet, which admits its pods again. This pod no longer fits the node, so kubelet
  // ends it within seconds, and later steps may not run (kubelet, HandlePodAdditions and HandlePodCleanups). The unit
  // on the host completes its work.
  await posted(context, 'ShimUninstalling', 'the label was removed: kubelet is about to restart', end);
  const outcome = (removal.outcome = await uninstalled(context, isStaged, end));
  await labelled(context, outcome.kind === 'done' ? undefined : version, end);
  const result = await readyAgain(context, outcome, end);
  await turn.end(end, result.kind === 'done' || result.kind === 'gone' ? undefined : result.why);
  if (result.kind === 'gone') say(result.why);
  else await reported(context, result.kind === 'done' ? 'ShimUninstalled' : 'ShimUninstallFailed', result, end);
}

async function notInstalled(context: RolloutContext, end: AbortSignal): Promise<void> {
  context.say('the shim is not installed');
  // The shim may have been uninstalled manually.
  await labelled(context, undefined, end);
}

/** Returns why the shim must stay now: the wait for the turn may take an hour. Otherwise returns undefined. */
async function staysInstalled(context: RolloutContext, end: AbortSignal): Promise<string | undefined> {
  const node = await retry('this node cannot be read', context, end, context.readNode);
  if (node === undefined || node.isEnding) return LEAVING;
  return context.hasLabel(node.labels) ? 'this node has the label again: the shim stays installed' : undefined;
}

/**
 * Uninstalls the shim. Waits while another installation runs on the node, because this pod has no later attempt.
 * @param isStaged whether the program is on the host
 */
async function uninstalled(context: RolloutContext, isStaged: boolean, end: AbortSignal): Promise<Outcome> {
  const { host, uninstallFlags, clock, times, say } = context;
  const run = async (): Promise<CommandResult> => host.resizectl(['uninstall', ...uninstallFlags], 'unstage');
  const stageAndRun = async (): Promise<CommandResult> => (await context.stage(), run());
  for (let work = isStaged ? run : stageAndRun; ; work = stageAndRun) {
    const outcome = outcomeOf(await attempted(work));
    if (outcome.kind !== 'refused' || outcome.isBusy !== true) return outcome;
    say(`waiting: ${outcome.why}`);
    await pause(clock, times.poll, end);
  }
}

/** Reports a removal that has not come to its end: no other pod tries it again. Takes a few seconds at most. */
async function reportUnfinished(
  context: RolloutContext,
  { turn, outcome }: Removal,
  error: unknown,
  end: AbortSignal,
): Promise<void> {
  const soon = AbortSignal.timeout(SOON_MS);
  const why = end.aborted ? whyLate(turn, outcome) : messageOf(error);
  if (turn !== undefined) {
    await labelled(context, outcome?.kind === 'done' ? undefined : version, soon);
    // Otherwise the turn stays: the other nodes detect whether this node becomes Ready, as if kubelet had ended the
    // pod.
    if (outcome?.kind !== 'done' || !end.aborted)
      await turn
        .end(soon, outcome === undefined ? undefined : why)
        .catch(() => context.say('the turn of this node was not ended'));
  }
  const reason = outcome === undefined ? 'ShimLeftInstalled' : 'ShimUninstallFailed';
  await reported(context, reason, { kind: 'failed', why }, soon);
}

/** Returns which step exceeded the grace period of the pod. */
function whyLate(turn: Turn | undefined, outcome: Outcome | undefined): string {
  const late = 'the grace period of the pod ended';
  if (outcome === undefined)
    return `${late} ${turn === undefined ? 'before the turn of this node' : 'before the removal could begin'}`;
  return outcome.kind === 'done' ? `${late} before this node was Ready again` : outcome.why;
}

/** Turns a rejection into a failure: resizectl was not started. */
async function attempted(work: () => Promise<CommandResult>): Promise<CommandResult> {
  try {
    return await work();
  } catch (error) {
    return { code: 1, lines: [messageOf(error)] };
  }
}

/** Logs the result and creates an event of the node, unless that takes too long. Returns the result. */
async function reported(
  context: RolloutContext,
  reason: Reason,
  outcome: Outcome,
  signal: AbortSignal,
): Promise<Outcome> {
  const { say } = context;
  const note = outcome.kind === 'done' ? noteOf(outcome.left) : outcome.why;
  say(`${reason}: ${note}`);
  await posted(context, reason, note, signal);
  return outcome;
}

const noteOf = (left: string | undefined): string =>
  `kubelet runs, and this node is Ready${left === undefined ? '' : `; left on this node: ${left}`}`;

const SOON_MS = 5000;

/** Waits until the node is Ready: otherwise a problem could not be attributed to the installation. */
async function readyNow(context: RolloutContext, signal: AbortSignal): Promise<void> {
  const say = loggingChanges(context.say);
  for (;;) {
    const node = await retry('this node cannot be read', context, signal, context.readNode);
    if (node?.isReady === true) return;
    say('waiting: this node is not Ready');
    await pause(context.clock, 5 * context.times.poll, signal);
  }
}

/**
 * After completed work, waits until the restarted kubelet has reported the node as Ready. The API has the old kubelet's
 * status for a while. After an outage of the API server the wait starts over, because kubelet could not report during
 * it.
 */
async function readyAgain(context: RolloutContext, outcome: Outcome, signal: AbortSignal): Promise<Outcome> {
  if (outcome.kind !== 'done') return outcome;
  const { host, times, clock } = context;
  let missing = 'this node is not Ready again';
  for (let until = clock.now() + times.ready; clock.now() < until; ) {
    const asked = clock.now();
    const node = await retry('this node cannot be read', context, signal, context.readNode);
    if (clock.now() - asked > times.ready / 3) until = clock.now() + times.ready;
    const started = await host.kubeletStart().catch(() => undefined);
    if (node === undefined) return { kind: 'gone', why: 'this node has left the cluster during its turn' };
    if (started === undefined) missing = 'kubelet is not running';
    else if (!node.isReady) missing = 'this node is not Ready again';
    // Kubernetes stores whole seconds.
    else if (node.heartbeat < Math.floor(started / 1000) * 1000) missing = 'kubelet has not reported its status again';
    else return outcome;
    await pause(clock, times.poll, signal);
  }
  return { kind: 'failed', why: `${missing} after ${times.ready / 1000} s` };
}
