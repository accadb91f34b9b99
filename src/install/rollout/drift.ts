import { messageOf, pause } from '../../core/index.ts';
import type { Drift } from '../../kubelet/endpoint/drift.ts';
import { posted, type RolloutContext } from './context.ts';
import { loggingChanges } from './retry.ts';

type DriftContext = Pick<
  RolloutContext,
  'drift' | 'repairsDrift' | 'say' | 'random' | 'clock' | 'eventToPost' | 'times'
>;

/**
 * Watches kubelet's endpoint while the shim is installed, and reports when kubelet stops or resumes using the shim. Two
 * consecutive checks have to agree, so a file that is being written is no drift. Resolves when the shim is to be
 * installed again. Otherwise rejects only with the reason of the signal.
 * @param earliest time of the clock before which nothing is repaired, so that two programs that write the same file do
 * not restart kubelet all the time
 */
export async function driftToRepair(context: DriftContext, earliest: number, stop: AbortSignal): Promise<void> {
  const { times, repairsDrift } = context;
  const complain = loggingChanges(context.say);
  let [before, reported]: Drift['state'][] = ['shim', 'shim'];
  for (;;) {
    await pause(context.clock, times.look, stop);
    const { state, note } = await lookedAt(context, complain);
    const isSure = state === before && state !== 'unknown';
    before = state;
    if (!isSure) continue;
    if (state !== reported) await report(context, state === 'past' ? 'ShimDrift' : 'ShimDriftEnded', note, stop);
    reported = state;
    if (state === 'past' && repairsDrift && context.clock.now() >= earliest) return;
  }
}

/** Reports that kubelet uses the shim again after {@link driftToRepair}. Rejects only with the signal's reason. */
export async function reportRepaired(context: DriftContext, stop: AbortSignal): Promise<void> {
  const { state, note } = await lookedAt(context, context.say);
  if (state === 'shim') await report(context, 'ShimDriftEnded', note, stop);
}

async function lookedAt({ drift }: DriftContext, complain: (line: string) => void): Promise<Drift> {
  try {
    return await drift();
  } catch (error) {
    complain(`kubelet's endpoint cannot be read: ${messageOf(error)}`);
    return { state: 'unknown', note: '' };
  }
}

async function report(
  context: DriftContext,
  reason: 'ShimDrift' | 'ShimDriftEnded',
  note: string,
  stop: AbortSignal,
): Promise<void> {
  context.say(`${reason}: ${note}`);
  await posted(context, reason, note, stop);
}
