import {
  type CgroupPath,
  type CgroupTree,
  type HeldUsage,
  isCgroupVanished,
  lowerUsage,
  type SwapLimits,
} from '../../cgroups/index.ts';
import {
  type Bytes,
  Code,
  type KeyedLock,
  type Limit,
  Reason,
  type ReclaimOutcome,
  ShimError,
  steadyNow,
} from '../../core/index.ts';
import { assertReclaimable } from '../admission/memory-in-use.ts';
import type { Node } from '../node.ts';
import { compareLimits } from '../plan/amounts.ts';
import type { Change } from '../plan/step.ts';
import type { Subject } from '../pods/names.ts';

/** The time reserved for a rollback, in milliseconds. */
export const ROLLBACK_MS = 2000;

/**
 * Returns the deadline for reclaiming memory for a call, by {@link steadyNow}: the caller's deadline or the configured
 * maximum, less the time of a rollback. The rollback is reserved at most half of a short deadline (crictl: 2 s).
 */
export function reclaimBy(reclaimTimeout: number, deadline = Infinity): number {
  return afterRollback(Math.min(deadline - steadyNow(), reclaimTimeout));
}

/**
 * Returns the deadline for a container's update to wait for its turn, by {@link steadyNow}: the caller's deadline, less
 * the time of a rollback. Without a deadline, the update waits as long as memory may be reclaimed.
 */
export const turnBy = (reclaimTimeout: number, deadline = Infinity): number =>
  deadline === Infinity ? reclaimBy(reclaimTimeout) : afterRollback(deadline - steadyNow());

function afterRollback(milliseconds: number): number {
  const left = Math.max(0, milliseconds);
  return steadyNow() + left - Math.min(ROLLBACK_MS, left / 2);
}

/** Awaited before a cgroup's memory.high is lowered: journals the previous value, to be restored. */
export type OnHigh = (cgroup: CgroupPath, previous: Limit<Bytes>) => Promise<void>;

/** A change of a cgroup's memory limit. */
export interface MemoryChange extends Subject {
  readonly cgroup: CgroupPath;
  readonly memory: Change<Limit<Bytes>>;
  /** The memory.high that is set with the limit. If absent, memory.high does not change. */
  readonly high?: Limit<Bytes> | undefined;
  /** The swap limits that are set with the limit. Swap usage above them counts as memory in use. */
  readonly swapAfter?: SwapLimits | undefined;
  /** The turn in which the limit is set. Undefined: immediately, because there is no turn or the caller has it. */
  readonly turn?: Turn | undefined;
}

/** The turn of one update among all updates of a container by the runtime. */
export interface Turn {
  readonly calls: KeyedLock;
  readonly id: string;
  /** Maximum time that an update without a memory decrease waits, by {@link steadyNow}. */
  readonly until: number;
  /** Returns the error for such an update if it waited too long. */
  readonly late: () => Error;
}

/** Runs an update in its turn. If the turn is late, throws {@link Turn.late} and does not run the update. */
export const inTurn = <Result>({ calls, id, until, late }: Turn, update: () => Promise<Result>): Promise<Result> =>
  calls.runBy(id, update, until, late);

/**
 * KEP-1287: a memory limit is lowered only when usage is below it. Runs `set`, which sets a memory limit, once reclaim
 * has got the usage below it (kernel cgroup-v2, memory.reclaim and memory.high), or at once when the limit is not
 * lowered. Throws MEMORY_NOT_RECLAIMABLE, RECLAIM_TIMEOUT or {@link Turn.late} before `set` runs, and what `set`
 * throws.
 *
 * @param onHigh if absent, nothing is reclaimed before: a crash would leave memory.high lowered
 */
export async function lowerMemory<Result>(
  node: Node,
  change: MemoryChange,
  deadline: number,
  set: () => Promise<Result>,
  onHigh?: OnHigh,
): Promise<Result> {
  const { text, ids, cgroup, memory, high, swapAfter, turn } = change;
  const setInTurn = (): Promise<Result> => (turn === undefined ? set() : inTurn(turn, set));
  if (memory.to === 'max' || compareLimits(memory.to, memory.from) >= 0) return setInTurn();
  if (onHigh === undefined) return lowerUnjournalled(node.tree, change, deadline, set);
  const progress = { isSetting: false };
  const start = performance.now();
  const reclaimed = (outcome: ReclaimOutcome): void => node.counters.reclaim(outcome, performance.now() - start);
  try {
    const begin = (): Promise<Result> => {
      progress.isSetting = true;
      reclaimed('done');
      return set();
    };
    const lower = (held: HeldUsage): Promise<Result> => setWhileLow(change, deadline, held, begin);
    const { before, reached, reclaims, oomKills, lowered } = await lowerUsage(node.tree, cgroup, {
      target: memory.to,
      deadline,
      lower,
      newHigh: high,
      swapAfter,
      onHigh: (previous) => onHigh(cgroup, previous),
    });
    const fields = { ...ids, target: memory.to, before: before.current, reached: reached.current };
    if (reclaims > 0) node.log.info({ ...fields, reclaims }, 'memory reclaimed');
    if (oomKills > 0) node.counters.oomKills(oomKills);
    if (oomKills > 0) node.log.warn({ ...fields, oomKills }, 'OOM kill while a memory limit was lowered');
    return lowered;
  } catch (error) {
    // The cgroup has just ended: nothing is in use, and `set` reports that.
    if (!progress.isSetting && isCgroupVanished(error)) return setInTurn();
    if (progress.isSetting) throw error;
    reclaimed(reclaimOutcomeOf(error));
    throw named(error, text, ids);
  }
}

/**
 * Lowers a limit without a journal, which would record the memory.high to restore after a crash. The kernel reclaims
 * when the limit is set, provided that the unreclaimable memory is below it.
 */
async function lowerUnjournalled<Result>(
  tree: CgroupTree,
  change: MemoryChange,
  deadline: number,
  set: () => Promise<Result>,
): Promise<Result> {
  const { cgroup, memory, swapAfter } = change;
  const check = async (): Promise<void> => {
    try {
      await assertReclaimable(tree, change, { cgroup, now: memory.from, wanted: memory.to, swapAfter });
    } catch (error) {
      // Nothing is in use, and `set` reports that.
      if (!isCgroupVanished(error)) throw error;
    }
  };
  await check();
  return setWhileLow(change, deadline, { lowerAgain: check }, set);
}

/**
 * Runs `set` in its turn. After a wait, usage is lowered again, because memory.high only slows its growth. Throws
 * RECLAIM_TIMEOUT without running `set` if the turn has not come by the deadline.
 */
async function setWhileLow<Result>(
  { cgroup, memory, turn }: MemoryChange,
  deadline: number,
  held: Pick<HeldUsage, 'lowerAgain'>,
  set: () => Promise<Result>,
): Promise<Result> {
  if (turn === undefined) return set();
  const { calls, id } = turn;
  if (!calls.isHeld(id)) return calls.run(id, set);
  const lowerAndSet = async (): Promise<Result> => {
    await held.lowerAgain();
    return set();
  };
  return calls.runBy(id, lowerAndSet, deadline, () => notInTurn(cgroup, memory.to));
}

function notInTurn(cgroup: CgroupPath, target: Limit<Bytes>): ShimError {
  const message = `${cgroup}: the limit could not be set to ${target} bytes in time: the runtime is busy with another update`;
  const context = { file: `${cgroup}/memory.max`, asked: String(target) };
  return new ShimError(Code.DEADLINE_EXCEEDED, Reason.RECLAIM_TIMEOUT, message, context);
}

function reclaimOutcomeOf(error: unknown): ReclaimOutcome {
  if (!(error instanceof ShimError)) return 'failed';
  if (error.reason === Reason.MEMORY_NOT_RECLAIMABLE) return 'not_reclaimable';
  return error.reason === Reason.RECLAIM_TIMEOUT ? 'timeout' : 'failed';
}

/** Adds the pod and the container to an error that names only the cgroup's path. */
function named(error: unknown, text: string, ids: MemoryChange['ids']): unknown {
  const isOurs =
    error instanceof ShimError &&
    (error.reason === Reason.MEMORY_NOT_RECLAIMABLE || error.reason === Reason.RECLAIM_TIMEOUT);
  if (!isOurs) return error;
  const context = { ...error.context, ...ids };
  return new ShimError(error.code, error.reason, `${text}: ${error.message}`, context, { cause: error });
}
