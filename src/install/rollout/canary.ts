import { messageOf, pause } from '../../core/index.ts';
import { posted, type RolloutContext } from './context.ts';
import { retry } from './retry.ts';
import { haltAll, vouchedCanaries, vouchFor } from './turns.ts';

/** The check of a canary node: empty, or why it does not work. `run`: the run of the shim; empty if unknown. */
interface Look {
  readonly why?: string;
  /** Whether the reason is that kubelet does not use the shim. */
  readonly isPast?: true;
  readonly run: string;
}

/**
 * Watches a canary node for the soak time and then vouches for the release, so that the other nodes get it. Does
 * nothing if the node is no canary or enough canaries vouch. If the node does not work in two consecutive checks, halts
 * all installations of this release, and continues to watch. Returns false if the shim must be installed again because
 * kubelet does not use it; the first time, this does not halt the release. Otherwise returns true. Rejects only with
 * the reason of the signal.
 * @param earliest time of the clock before which nothing is repaired
 */
export async function passedAsCanary(context: RolloutContext, earliest: number, stop: AbortSignal): Promise<boolean> {
  const { turns, say, times, clock } = context;
  if (turns.canaries === 0 || !(await isNeeded(context, stop))) return true;
  say(`this node is a canary: it is watched for ${times.soak / 1000} s`);
  let [start, before, reported] = [clock.now(), await look(context, '', stop), ''];
  for (;;) {
    await pause(clock, times.look, stop);
    const now = await look(context, before.run, stop);
    const isRestarted = before.run !== '' && now.run !== before.run;
    const why = isRestarted ? 'the shim has ended and was started again' : now.why;
    const isSure = isRestarted || before.why !== undefined;
    const isDrift = !isRestarted && before.isPast === true && now.isPast === true;
    before = now;
    if (why === undefined && clock.now() - start >= times.soak) break;
    if (why === undefined) continue;
    start = clock.now();
    if (isDrift && context.repairsDrift && start >= earliest) {
      say(`ShimDrift: ${why}`);
      await posted(context, 'ShimDrift', why, stop);
      return false;
    }
    if (!isSure || why === reported) continue;
    reported = why;
    await failed(context, why, stop);
  }
  await vouchFor(turns, stop);
  say('ShimCanaryPassed: the other nodes may get this release');
  await posted(context, 'ShimCanaryPassed', `it has worked for ${times.soak / 1000} s`, stop);
  return true;
}

async function isNeeded(context: RolloutContext, stop: AbortSignal): Promise<boolean> {
  const { turns } = context;
  const node = await retry('this node cannot be read', context, stop, context.readNode);
  if (node === undefined || !context.isCanary(node.labels)) return false;
  const vouching = await vouchedCanaries(turns, stop);
  return vouching.length < turns.canaries && !vouching.includes(turns.holder);
}

async function failed(context: RolloutContext, why: string, stop: AbortSignal): Promise<void> {
  context.say(`ShimCanaryFailed: ${why}`);
  await haltAll(context.turns, `canary: ${why}`, stop);
  await posted(context, 'ShimCanaryFailed', why, stop);
}

/**
 * Checks the node.
 * @param known the shim's run of the last check: returned if systemd does not answer, so that no restart is missed
 */
async function look(context: RolloutContext, known: string, stop: AbortSignal): Promise<Look> {
  const node = await retry('this node cannot be read', context, stop, context.readNode);
  let run = known;
  try {
    const shim = await context.host.shim();
    run = shim.run || known;
    if (!shim.isActive) return { why: 'the shim does not run', run };
    if (node?.isReady !== true) return { why: 'this node is not Ready', run };
    const { state, note } = await context.drift();
    return state === 'past' ? { why: note, isPast: true, run } : { run };
  } catch (error) {
    return { why: messageOf(error), run };
  }
}
