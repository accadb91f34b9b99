import { type CgroupPath, type CgroupTree, isCgroupVanished, makeRoom } from '../../cgroups/index.ts';
import { Reason, ShimError } from '../../core/errors/index.ts';
import type { Counters, Log, ReclaimOutcome } from '../../observe/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import type { Subject } from '../../sandbox/index.ts';
import { type Change, compareLimits } from '../model/index.ts';

/** What is kept of the time for undoing, in milliseconds. */
export const ROLLBACK_MS = 2000;

/**
 * Until when memory may be reclaimed for a call, in milliseconds since the epoch: the caller's deadline, or the longest that
 * is allowed, less what undoing takes. A caller that gives little time (crictl gives 2 s) loses half of it to that at most.
 */
export function reclaimBy(context: { readonly reclaimTimeout: number }, deadline = Infinity): number {
  const now = Date.now();
  const left = Math.max(0, Math.min(deadline - now, context.reclaimTimeout));
  return now + left - Math.min(ROLLBACK_MS, left / 2);
}

/** Awaited before a cgroup's memory.high is lowered, with what it has to become again: for the journal. */
export type OnHigh = (cgroup: CgroupPath, previous: Limit<Bytes>) => Promise<void>;

/** A cgroup whose memory limit changes. */
export interface MemoryChange extends Subject {
  readonly cgroup: CgroupPath;
  readonly memory: Change<Limit<Bytes>>;
}

/**
 * Runs `set`, which sets a memory limit, once the use is under it; at once when the limit is not lowered. Throws
 * MEMORY_NOT_RECLAIMABLE or RECLAIM_TIMEOUT with `set` not run and nothing changed, and what `set` throws.
 */
export async function lowerMemory(
  context: { readonly tree: CgroupTree; readonly log: Log; readonly counters: Counters },
  { text, ids, cgroup, memory }: MemoryChange,
  deadline: number,
  set: () => Promise<void>,
  onHigh?: OnHigh,
): Promise<void> {
  if (memory.to === 'max' || compareLimits(memory.to, memory.from) >= 0) return set();
  const progress = { isSetting: false };
  const start = performance.now();
  const reclaimed = (outcome: ReclaimOutcome): void => context.counters.reclaim(outcome, performance.now() - start);
  try {
    const lower = (): Promise<void> => {
      progress.isSetting = true;
      reclaimed('done');
      return set();
    };
    const { before, reached, reclaims, oomKills } = await makeRoom(context.tree, cgroup, {
      target: memory.to,
      deadline,
      lower,
      ...(onHigh && { onHigh: (previous) => onHigh(cgroup, previous) }),
    });
    const fields = { ...ids, target: memory.to, before: before.current, reached: reached.current };
    if (reclaims > 0) context.log.info({ ...fields, reclaims }, 'memory reclaimed');
    if (oomKills > 0) context.counters.oomKills(oomKills);
    if (oomKills > 0) context.log.warn({ ...fields, oomKills }, 'OOM kill while a memory limit was lowered');
  } catch (error) {
    // It has just ended: nothing is in use any more, and who sets the limit finds out by himself.
    if (!progress.isSetting && isCgroupVanished(error)) return set();
    if (progress.isSetting) throw error;
    reclaimed(reclaimOutcomeOf(error));
    throw named(error, text, ids);
  }
}

function reclaimOutcomeOf(error: unknown): ReclaimOutcome {
  if (!(error instanceof ShimError)) return 'failed';
  if (error.reason === Reason.MEMORY_NOT_RECLAIMABLE) return 'not_reclaimable';
  return error.reason === Reason.RECLAIM_TIMEOUT ? 'timeout' : 'failed';
}

/** The cgroup's path says little to whoever has asked: the error names the pod and the container as well. */
function named(error: unknown, text: string, ids: MemoryChange['ids']): unknown {
  const isOurs =
    error instanceof ShimError &&
    (error.reason === Reason.MEMORY_NOT_RECLAIMABLE || error.reason === Reason.RECLAIM_TIMEOUT);
  if (!isOurs) return error;
  const context = { ...error.context, ...ids };
  return new ShimError(error.code, error.reason, `${text}: ${error.message}`, context, { cause: error });
}
