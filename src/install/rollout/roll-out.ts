import { messageOf } from '../../core/errors/index.ts';
import { EVENT_MS, posted } from './posted.ts';
import type { Reason } from './events.ts';
import type { CommandResult } from './host.ts';
import { driftToRepair } from './drift.ts';
import type { ClusterNode } from './node.ts';
import type { RolloutContext } from './rollout-context.ts';
import { type Outcome, hasChanges, outcomeOf } from './outcome.ts';
import { type Turn, loggingChanges, pause, retry, sleep, takeTurn, unfinishedTurn } from './turns/index.ts';
import { REMOVING, labelled } from './version-label.ts';
import { passedAsCanary } from './canary.ts';
import { version } from '../../config/index.ts';

/**
 * Installs the shim when it is the turn of this node, then waits for the signal. If everything is in place already, as after a
 * restart of the pod, it takes no turn. If kubelet stops using the shim, it reports that, and installs the shim again if it is to.
 * Rejects only with the reason of the signal.
 * @param end aborts when the grace period is over
 */
export async function keepInstalled(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<never> {
  for (let earliest = 0; ; earliest = context.clock.now() + context.times.retry) {
    await install(context, stop, end);
    await passedAsCanary(context, stop);
    await driftToRepair(context, earliest, stop);
  }
}

async function install(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<void> {
  const { say, markReady, random } = context;
  await markReady(false);
  for (let tries = 1; ; tries += 1) {
    const outcome = await installed(context, stop, end);
    if (outcome.kind === 'done') break;
    if (outcome.kind === 'refused') await context.unstage();
    stop.throwIfAborted();
    await sleep(context.clock, outcome.kind === 'failed' ? pause(tries, random()) : context.times.retry, stop);
  }
  await context.unstage();
  await labelled(context, version, end);
  await markReady(true);
  say('the shim is installed');
}

async function installed(context: RolloutContext, stop: AbortSignal, end: AbortSignal): Promise<Outcome> {
  const { host, installFlags } = context;
  await host.idle(stop);
  const looked = await attempted(async () => {
    await context.stage();
    return host.resizectl(['install', '--dry-run', ...installFlags]);
  });
  const fit = outcomeOf(looked);
  if (fit.kind !== 'done') return reported(context, 'ShimInstallRefused', { kind: 'refused', why: fit.why }, end);
  const isThere = !hasChanges(looked);
  const turn = isThere ? await unfinishedTurnOf(context, stop) : await newTurn(context, stop);
  if (turn === undefined) return fit;
  // From here on the installation is completed, regardless of the restart of kubelet and of the stop signal.
  const ended = isThere ? looked : await attempted(() => host.resizectl(['install', ...installFlags]));
  const outcome = outcomeOf(ended);
  const result = outcome.kind === 'done' ? await readyAgain(context, end) : outcome;
  await turn.end(end, result.kind === 'failed' ? result.why : undefined);
  if (result.kind === 'done') return reported(context, 'ShimInstalled', result, end);
  if (result.kind === 'gone') {
    context.say(result.why);
    return result;
  }
  return reported(context, result.kind === 'refused' ? 'ShimInstallRefused' : 'ShimInstallFailed', result, end);
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
  // Without an answer, the turn expires with its Lease.
  return unfinishedTurn(context.turns, soon).catch(() => undefined);
}

/**
 * Runs when the pod ends. Uninstalls the shim if the label was removed. If the node has the label, or the API server does not
 * answer, the shim stays: a pod also ends on an upgrade of the DaemonSet or a drain. Rejects only with the reason of the signal.
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
  if (node === undefined || node.isEnding) say('this node is being removed from the cluster: the shim stays installed');
  else if (hasLabel(node.labels)) say('this node has the label: the shim stays installed');
  else await uninstall(context, end);
  await unstageIdle(context);
}

/** Removes the staged program unless a unit on the host still runs it. */
async function unstageIdle({ host, unstage }: RolloutContext): Promise<void> {
  const isIdle = await host.idle(AbortSignal.timeout(SOON_MS)).then(
    () => true,
    () => false,
  );
  if (isIdle) await unstage();
}

async function uninstall(context: RolloutContext, end: AbortSignal): Promise<void> {
  const { host, say, uninstallFlags } = context;
  say('the label was removed: uninstalling the shim');
  await context.markReady(false);
  let isBegun = false;
  try {
    await host.idle(end);
    const looked = await attempted(async () => {
      await context.stage();
      return host.resizectl(['uninstall', '--dry-run', ...uninstallFlags]);
    });
    const fit = outcomeOf(looked);
    if (fit.kind === 'done' && !hasChanges(looked)) {
      say('the shim is not installed');
      return;
    }
    const turn = await takeTurn(context.turns, 'uninstall', end);
    isBegun = true;
    // Only a removal that has succeeded removes it: `restore` waits for that (docs/kubernetes.md).
    await labelled(context, REMOVING, end);
    // Before the restart of kubelet, which admits its pods again: this one no longer fits the node, so kubelet ends it within seconds,
    // and nothing after this may happen (kubelet, HandlePodAdditions and HandlePodCleanups). The unit on the host completes its work.
    await posted(context, 'ShimUninstalling', 'the label was removed: kubelet is about to restart', end);
    const outcome = outcomeOf(await attempted(() => host.resizectl(['uninstall', ...uninstallFlags], 'unstage')));
    await labelled(context, outcome.kind === 'done' ? undefined : version, end);
    const result = outcome.kind === 'done' ? await readyAgain(context, end) : outcome;
    await turn.end(end, result.kind === 'done' || result.kind === 'gone' ? undefined : result.why);
    if (result.kind === 'gone') say(result.why);
    else await reported(context, result.kind === 'done' ? 'ShimUninstalled' : 'ShimUninstallFailed', result, end);
  } catch (error) {
    if (!end.aborted) throw error;
    const what = isBegun ? 'this node was Ready again' : 'the turn of this node';
    const result = { kind: 'failed', why: `the grace period of the pod ended before ${what}` } as const;
    const reason = isBegun ? 'ShimUninstallFailed' : 'ShimLeftInstalled';
    await reported(context, reason, result, AbortSignal.timeout(SOON_MS));
  }
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
  const note = outcome.kind === 'done' ? 'kubelet runs, and this node is Ready' : outcome.why;
  say(`${reason}: ${note}`);
  await posted(context, reason, note, signal);
  return outcome;
}

const SOON_MS = 5000;

/** Waits until the node is Ready: otherwise a problem could not be attributed to the installation. */
async function readyNow(context: RolloutContext, signal: AbortSignal): Promise<void> {
  const say = loggingChanges(context.say);
  for (;;) {
    const node = await retry('this node cannot be read', context, signal, context.readNode);
    if (node?.isReady === true) return;
    say('waiting: this node is not Ready');
    await sleep(context.clock, 5 * context.times.poll, signal);
  }
}

/** Waits until the restarted kubelet has reported the node as Ready. The API keeps the status of the old one for a while. */
async function readyAgain(context: RolloutContext, signal: AbortSignal): Promise<Outcome> {
  const { host, times, clock } = context;
  let missing = 'this node is not Ready again';
  for (const until = clock.now() + times.ready; clock.now() < until; ) {
    const node = await retry('this node cannot be read', context, signal, context.readNode);
    const started = await host.kubeletStart().catch(() => undefined);
    if (node === undefined) return { kind: 'gone', why: 'this node has left the cluster during its turn' };
    if (started === undefined) missing = 'kubelet is not running';
    else if (!node.isReady) missing = 'this node is not Ready again';
    // Kubernetes stores whole seconds.
    else if (node.heartbeat < Math.floor(started / 1000) * 1000) missing = 'kubelet has not reported its status again';
    else return { kind: 'done' };
    await sleep(clock, times.poll, signal);
  }
  return { kind: 'failed', why: `${missing} after ${times.ready / 1000} s` };
}
