import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../core/errors/index.ts';
import type { Reason } from './events.ts';
import type { Ended, Host } from './host.ts';
import type { ClusterNode } from './node.ts';
import { type Outcome, isAnythingToDo, outcomeOf } from './outcome.ts';
import { type Patience, pause, sayingOnce, untilDone } from './patience.ts';
import { type Turn, type TurnParts, takeTurn, unfinishedTurn } from './turn.ts';

/** This node, and what the installer does with it. */
export interface RollOutParts extends Patience {
  readonly host: Host;
  readonly turns: TurnParts;
  /** Puts the program on the host, for {@link Host.resizectl}; and takes it away again. */
  readonly stage: () => Promise<void>;
  readonly unstage: () => Promise<void>;
  /** What install and uninstall are told. */
  readonly installFlags: readonly string[];
  readonly uninstallFlags: readonly string[];
  readonly readNode: (signal: AbortSignal) => Promise<ClusterNode | undefined>;
  readonly tell: (reason: Reason, note: string, signal: AbortSignal) => Promise<void>;
  /** For the pod's readiness. */
  readonly markReady: (isReady: boolean) => Promise<void>;
  /** Whether these labels ask for the shim. */
  readonly isAsked: (labels: ClusterNode['labels']) => boolean;
  readonly waits: Waits;
}

/** In milliseconds. */
export interface Waits {
  /** For the node to be Ready again after its turn. */
  readonly ready: number;
  /** Until a node that was not fit is looked at again. */
  readonly again: number;
  /** Between looks at a node that is not Ready. */
  readonly look: number;
  /** For the API server to say, at the end of the pod, whether the label is there. */
  readonly answer: number;
}

/**
 * Sees to it that the shim is installed here, in this node's turn, and stays until the signal comes. What is in place already needs no
 * turn: a pod that only starts anew waits for nobody. Rejects only with the signal's reason.
 * @param end when even what is under way is not waited for any more
 */
export async function keepInstalled(parts: RollOutParts, stop: AbortSignal, end: AbortSignal): Promise<never> {
  const { say, markReady, random } = parts;
  await markReady(false);
  for (let tries = 1; ; tries += 1) {
    const outcome = await installed(parts, stop, end);
    if (outcome.kind === 'done') break;
    if (outcome.kind === 'refused') await parts.unstage();
    stop.throwIfAborted();
    await delay(outcome.kind === 'refused' ? parts.waits.again : pause(tries, random()), undefined, { signal: stop });
  }
  await parts.unstage();
  await markReady(true);
  say('the shim is installed');
  // A timer, too, since a handler of signals does not keep a process.
  for (;;) await delay(DAY_MS, undefined, { signal: stop });
}

async function installed(parts: RollOutParts, stop: AbortSignal, end: AbortSignal): Promise<Outcome> {
  const { host, installFlags } = parts;
  await host.idle(stop);
  const looked = await attempted(async () => {
    await parts.stage();
    return host.resizectl(['install', '--dry-run', ...installFlags]);
  });
  const fit = outcomeOf(looked);
  if (fit.kind !== 'done') return told(parts, 'ShimInstallRefused', { kind: 'refused', why: fit.why }, end);
  const isThere = !isAnythingToDo(looked);
  const turn = isThere ? await leftTurn(parts, stop) : await newTurn(parts, stop);
  if (turn === undefined) return fit;
  // From here on what is under way is not left alone: neither kubelet's restart nor the end of this pod ends it.
  const ended = isThere ? looked : await attempted(() => host.resizectl(['install', ...installFlags]));
  const outcome = outcomeOf(ended);
  const result = outcome.kind === 'done' ? await readyAgain(parts, end) : outcome;
  await turn.end(end, result.kind === 'failed' ? result.why : undefined);
  if (result.kind === 'done') return told(parts, 'ShimInstalled', result, end);
  return told(parts, result.kind === 'refused' ? 'ShimInstallRefused' : 'ShimInstallFailed', result, end);
}

async function newTurn(parts: RollOutParts, stop: AbortSignal): Promise<Turn> {
  await readyNow(parts, stop);
  const turn = await takeTurn(parts.turns, 'install', stop);
  parts.say('it is the turn of this node');
  return turn;
}

/** What is in place already needs no turn: but an earlier pod may have been killed in its own, which others wait for. */
async function leftTurn(parts: RollOutParts, stop: AbortSignal): Promise<Turn | undefined> {
  const soon = AbortSignal.any([stop, AbortSignal.timeout(TELLING_MS)]);
  // Without an answer it is lost when its time is over.
  return unfinishedTurn(parts.turns, soon).catch(() => undefined);
}

/**
 * At the pod's end: takes the shim off where the label has gone, and leaves it where the label is, or where nobody can say: a pod also
 * ends when the DaemonSet is upgraded, or the node drained. Rejects only with the signal's reason.
 */
export async function leave(parts: RollOutParts, end: AbortSignal): Promise<void> {
  const { say, readNode, isAsked } = parts;
  const answer = AbortSignal.any([end, AbortSignal.timeout(parts.waits.answer)]);
  let node: ClusterNode | undefined;
  try {
    node = await untilDone('this node cannot be read', parts, answer, readNode);
  } catch {
    say('the API server does not say whether the label is there: the shim stays installed');
    return;
  }
  if (node === undefined || node.isEnding) say('this node leaves the cluster: the shim stays installed');
  else if (isAsked(node.labels)) say('the label is there: the shim stays installed');
  else await takeOff(parts, end);
  await unstageIdle(parts);
}

/** What runs on the host runs from what is staged there: a unit that an earlier pod has begun, say, and that nobody has waited for. */
async function unstageIdle({ host, unstage }: RollOutParts): Promise<void> {
  const isIdle = await host.idle(AbortSignal.timeout(SOON_MS)).then(
    () => true,
    () => false,
  );
  if (isIdle) await unstage();
}

async function takeOff(parts: RollOutParts, end: AbortSignal): Promise<void> {
  const { host, say, uninstallFlags } = parts;
  say('the label has gone: the shim is taken off');
  await parts.markReady(false);
  try {
    await host.idle(end);
    const looked = await attempted(async () => {
      await parts.stage();
      return host.resizectl(['uninstall', '--dry-run', ...uninstallFlags]);
    });
    const fit = outcomeOf(looked);
    if (fit.kind === 'done' && !isAnythingToDo(looked)) {
      say('nothing of it is installed');
      return;
    }
    const turn = await takeTurn(parts.turns, 'uninstall', end);
    const outcome = outcomeOf(await attempted(() => host.resizectl(['uninstall', ...uninstallFlags])));
    const result = outcome.kind === 'done' ? await readyAgain(parts, end) : outcome;
    await turn.end(end, result.kind === 'done' ? undefined : result.why);
    await told(parts, result.kind === 'done' ? 'ShimUninstalled' : 'ShimUninstallFailed', result, end);
  } catch (error) {
    if (!end.aborted) throw error;
    const why = 'the time that the pod has for its end was over before it was the turn of this node';
    await told(parts, 'ShimLeftInstalled', { kind: 'failed', why }, AbortSignal.timeout(SOON_MS));
  }
}

/** What could not even be begun has failed as well: of that nothing was touched. */
async function attempted(work: () => Promise<Ended>): Promise<Ended> {
  try {
    return await work();
  } catch (error) {
    return { code: 1, lines: [messageOf(error)] };
  }
}

/** Tells the node's events, if that can be done soon: it is in the log in any case. */
async function told(parts: RollOutParts, reason: Reason, outcome: Outcome, signal: AbortSignal): Promise<Outcome> {
  const { say } = parts;
  const note = outcome.kind === 'done' ? 'kubelet runs, and this node is Ready' : outcome.why;
  say(`${reason}: ${note}`);
  const soon = AbortSignal.any([signal, AbortSignal.timeout(TELLING_MS)]);
  const telling = untilDone('this node cannot be told', parts, soon, (at) => parts.tell(reason, note, at));
  await telling.catch(() => say('this node was not told'));
  return outcome;
}

const SOON_MS = 5000;
const DAY_MS = 86_400_000;
const TELLING_MS = 30_000;

/** A node that is not Ready is not changed: nobody could say afterwards what has made it so. */
async function readyNow(parts: RollOutParts, signal: AbortSignal): Promise<void> {
  const say = sayingOnce(parts.say);
  for (;;) {
    const node = await untilDone('this node cannot be read', parts, signal, parts.readNode);
    if (node?.isReady === true) return;
    say('waiting: this node is not Ready');
    await delay(5 * parts.waits.look, undefined, { signal });
  }
}

/** Ready by the word of the kubelet that runs now: that of the one before stays in the API for a while. */
async function readyAgain(parts: RollOutParts, signal: AbortSignal): Promise<Outcome> {
  const { host, waits } = parts;
  let missing = 'this node is not Ready again';
  for (const until = performance.now() + waits.ready; performance.now() < until; ) {
    const node = await untilDone('this node cannot be read', parts, signal, parts.readNode);
    const started = await host.kubeletStart().catch(() => undefined);
    if (node === undefined || started === undefined) missing = node ? 'kubelet does not run' : 'this node has gone';
    else if (!node.isReady) missing = 'this node is not Ready again';
    // Kubernetes writes whole seconds.
    else if (node.heartbeat < Math.floor(started / 1000) * 1000) missing = 'kubelet has not been heard of again';
    else return { kind: 'done' };
    await delay(waits.look, undefined, { signal });
  }
  return { kind: 'failed', why: `${missing} after ${waits.ready / 1000} s` };
}
