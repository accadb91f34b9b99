import { messageOf } from '../../core/errors/index.ts';
import { posted } from './posted.ts';
import type { RolloutContext } from './rollout-context.ts';
import { haltAll, retry, sleep, vouchFor, vouchedCanaries } from './turns/index.ts';

/** What a look at a canary node finds: nothing, or why it does not work. `restarts`: how often the shim has failed. */
interface Look {
  readonly why?: string;
  readonly restarts: number;
}

/**
 * If this node is a canary and canaries are still needed: watches it for the time that a canary has to work, and then vouches for the
 * release, so that the other nodes get it. If the node does not work, halts all installations of this release, and continues to watch
 * it. Two looks in a row have to agree. Rejects only with the reason of the signal.
 */
export async function passedAsCanary(context: RolloutContext, stop: AbortSignal): Promise<void> {
  const { turns, say, times, clock } = context;
  if (turns.canaries === 0 || !(await isNeeded(context, stop))) return;
  say(`this node is a canary: it is watched for ${times.soak / 1000} s`);
  let [start, before, reported] = [clock.now(), await look(context, stop), ''];
  for (;;) {
    await sleep(clock, times.look, stop);
    const now = await look(context, stop);
    const why = now.restarts > before.restarts ? 'the shim has failed and was restarted' : now.why;
    const isSure = now.restarts > before.restarts || before.why !== undefined;
    before = now;
    if (why === undefined && clock.now() - start >= times.soak) break;
    if (why === undefined) continue;
    start = clock.now();
    if (!isSure || why === reported) continue;
    reported = why;
    await failed(context, why, stop);
  }
  await vouchFor(turns, stop);
  say('ShimCanaryPassed: the other nodes may get this release');
  await posted(context, 'ShimCanaryPassed', `it has worked for ${times.soak / 1000} s`, stop);
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

async function look(context: RolloutContext, stop: AbortSignal): Promise<Look> {
  const node = await retry('this node cannot be read', context, stop, context.readNode);
  try {
    const { isActive, restarts } = await context.host.shim();
    if (!isActive) return { why: 'the shim does not run', restarts };
    if (node?.isReady !== true) return { why: 'this node is not Ready', restarts };
    const { state, note } = await context.drift();
    return state === 'past' ? { why: note, restarts } : { restarts };
  } catch (error) {
    // Compares as neither more nor less.
    return { why: messageOf(error), restarts: NaN };
  }
}
