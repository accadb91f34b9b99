/** Bringing what a cgroup has in memory under a limit that it shall get, without a kill. */
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Bytes, type Limit, bytes } from '../../core/quantities/index.ts';
import type { CgroupTree, MemoryGlance, MemoryUse, Reclaimed } from '../tree.ts';
import { type CgroupPath, isCgroupVanished } from '../file.ts';
import { TemporaryMemoryHigh } from './memory-high.ts';
import { FIRST_CHUNK, Growth, goalOf, hasEnoughMargin, nextChunk, pauseAfter } from './pace.ts';
import { LEAST_AMOUNT, reclaiming } from './reclaim-slots.ts';
import { TimeLimit } from '../../core/concurrency/index.ts';

export interface LowerUsageOptions {
  /** The limit that the cgroup shall get, in bytes. */
  readonly target: Bytes;
  /** When it has to have been reached, in milliseconds since the epoch. `lower` is not cut off by it. */
  readonly deadline: number;
  readonly signal?: AbortSignal;
  /**
   * Awaited before memory.high is changed, with the value to put back: for a journal. Called again only when somebody
   * else has written another value meanwhile.
   */
  readonly onHigh?: (previous: Limit<Bytes>) => Promise<void>;
  /**
   * Sets the limit. Called once use is under the target, while memory.high still holds it there: without that, a process
   * that allocates fast is over the limit again before the runtime has written it. What it rejects with is thrown on.
   */
  readonly lower?: () => Promise<void>;
}

/** What was done, when use is under the target. */
export interface LowerUsageResult {
  readonly before: MemoryGlance;
  /** When it was under the target, before `lower`. */
  readonly reached: Pick<MemoryGlance, 'current'>;
  /** Writes to memory.reclaim. */
  readonly reclaims: number;
  /** Processes that the OOM killer has killed in the cgroup from the first look to the last: 0, or somebody is at fault. */
  readonly oomKills: number;
}

/** What it takes of a cgroup tree. */
export type LowerUsageTree = Pick<
  CgroupTree,
  'glanceAtMemory' | 'readMemoryCurrent' | 'readMemoryUse' | 'readHigh' | 'write' | 'reclaim' | 'holds'
>;

/** So many looks in a row that saw no less in use mean that the rest does not come free. */
const STALLED_LOOKS = 4;

/**
 * Brings memory.current of a cgroup under `target` by memory.high and memory.reclaim, and keeps it there while `lower` sets the
 * limit. Never touches memory.max. memory.high follows use down, step by step, so that what was reclaimed is not taken
 * again, and nobody is put to sleep for being far above it; it is as it was when this settles, however it does.
 *
 * Rejects with MEMORY_NOT_RECLAIMABLE (FAILED_PRECONDITION, both figures) as soon as what cannot be reclaimed is at or above
 * the target; RECLAIM_TIMEOUT (DEADLINE_EXCEEDED, both figures) when time is up and use is not under it; the signal's reason;
 * CGROUP_UNAVAILABLE and CGROUP_WRITE_FAILED as reading and writing do, CgroupVanished among them; UNDO_FAILED when memory.high cannot be put back.
 */
export async function lowerUsage(
  tree: LowerUsageTree,
  cgroup: CgroupPath,
  options: LowerUsageOptions,
): Promise<LowerUsageResult> {
  const time = new TimeLimit(options.deadline, options.signal);
  const high = new TemporaryMemoryHigh(tree, cgroup, options.onHigh ?? (() => Promise.resolve()));
  const reclaim = new Reclaim(tree, cgroup, options.target, time, high);
  try {
    time.throwIfAborted();
    const before = tree.glanceAtMemory(cgroup);
    const reached = await reclaim.run(before.current);
    await options.lower?.();
    await high.restore();
    const kills = oomKillsOr(tree, cgroup, before.oomKills);
    return { before, reached, reclaims: reclaim.count, oomKills: kills - before.oomKills };
  } catch (error) {
    await high.restore(error);
    throw error;
  } finally {
    time.close();
  }
}

class Reclaim {
  /** Writes to memory.reclaim. */
  count = 0;
  #chunk = FIRST_CHUNK;
  /** What memory.high is, as far as known; Infinity for none. */
  #held = Infinity;
  #lowest = Infinity;
  /** Looks in a row that saw no less in use than an earlier one. */
  #idle = 0;
  /** Kernels before 5.19 have no memory.reclaim; there lowering memory.high reclaims, before the write returns. */
  #isByHigh = false;
  readonly #growth = new Growth();

  constructor(
    readonly tree: LowerUsageTree,
    readonly cgroup: CgroupPath,
    readonly target: Bytes,
    readonly time: TimeLimit,
    readonly high: TemporaryMemoryHigh,
  ) {}

  /** Until use is under the target. Gives the use that was found then. */
  async run(first: Bytes): Promise<Pick<MemoryGlance, 'current'>> {
    for (let current = first; ; current = this.tree.readMemoryCurrent(this.cgroup)) {
      this.time.throwIfAborted();
      const goal = await this.#goal(current);
      if (this.#isReached(current, goal) && this.#isHeld() && (await this.#isSafe(current))) return { current };
      this.#note(current);
      const got = await this.#step(current, goal);
      // The kernel tells nobody when use falls (memory.events, all that can be watched, counts what goes wrong), so this
      // looks again: at once after progress, else at most 100 times in a second, and soon only 5 times.
      if (got === 'less' || this.#idle > 0) await this.time.pause(pauseAfter(this.#idle));
    }
  }

  /** Up to how much may be in use. Throws MEMORY_NOT_RECLAIMABLE, RECLAIM_TIMEOUT. */
  async #goal(current: Bytes): Promise<Bytes> {
    const lowest = goalOf(this.target, bytes(0));
    // However much of it cannot be reclaimed, it is under the goal: the kernel need not sum that up.
    if (current <= lowest) return lowest;
    const use = await this.tree.readMemoryUse(this.cgroup);
    this.time.throwIfAborted();
    if (use.unreclaimable >= this.target) throw notReclaimable(this.cgroup, this.target, use);
    const goal = goalOf(this.target, use.unreclaimable);
    if (this.time.isOver && !this.#isReached(use.current, goal)) throw timeout(this.cgroup, this.target, use);
    return goal;
  }

  #isReached(current: Bytes, goal: Bytes): boolean {
    if (current <= goal && this.#held <= goal) return true;
    // Under the target by less than hoped for: the rest does not come free, or not in time.
    const isEnough = this.time.isOver || (this.#idle >= STALLED_LOOKS && this.#held < this.target);
    return isEnough && current < this.target;
  }

  /**
   * Whether it stays under the target until the limit is there. Page cache that has not come free yet does no harm: the kernel
   * waits for it at the limit. Into little room beside the rest only what does not grow may go: the kernel would kill it there.
   */
  async #isSafe(current: Bytes): Promise<boolean> {
    if (hasEnoughMargin(this.target, current)) return true;
    const use = await this.tree.readMemoryUse(this.cgroup);
    this.time.throwIfAborted();
    if (hasEnoughMargin(this.target, use.unreclaimable)) return true;
    if (this.#growth.fits(use.unreclaimable, this.target - use.unreclaimable, performance.now())) return true;
    if (this.time.isOver) throw timeout(this.cgroup, this.target, use);
    return false;
  }

  /** Whether memory.high is still there: systemd takes away what its unit does not have when anybody sets a property of it. */
  #isHeld(): boolean {
    if (this.time.isOver) return true;
    const found = this.tree.readHigh(this.cgroup);
    const isHeld = found !== 'max' && found <= this.#held;
    this.#held = found === 'max' ? Infinity : found;
    return isHeld;
  }

  #note(current: Bytes): void {
    this.#idle = current < this.#lowest ? 0 : this.#idle + 1;
    this.#lowest = Math.min(this.#lowest, current);
  }

  async #step(current: Bytes, goal: Bytes): Promise<Reclaimed | undefined> {
    if (this.#isByHigh) return this.#stepByHigh(current, goal);
    // At what is in use, or above: the write itself then has nothing to reclaim, in kernels that ignore O_NONBLOCK.
    await this.#hold(bytes(Math.max(goal, current)));
    if (current <= goal || this.time.isOver) return undefined;
    const amount = bytes(Math.min(this.#chunk, Math.max(current - goal, LEAST_AMOUNT)));
    const got = await this.#timed(() => this.tree.reclaim(this.cgroup, amount));
    if (got === 'unsupported') this.#isByHigh = true;
    else this.count += 1;
    return got;
  }

  async #stepByHigh(current: Bytes, goal: Bytes): Promise<undefined> {
    // The write is what reclaims, and the same value is not written twice: what came free late needs a lower one.
    const next = Math.min(Math.max(goal, current - this.#chunk), this.#held - LEAST_AMOUNT);
    const limit = bytes(Math.max(0, next));
    await this.#timed(() => this.#hold(limit));
  }

  async #hold(limit: Bytes): Promise<void> {
    const found = await this.time.orOver(this.high.lowerTo(limit));
    if (found !== undefined) this.#held = found === 'max' ? Infinity : found;
  }

  /** A write that reclaims: in its turn, and the next one larger or smaller by how long it took. */
  async #timed<Result>(write: () => Promise<Result>): Promise<Result | undefined> {
    let took: number | undefined;
    const work = reclaiming.run(async () => {
      const start = performance.now();
      try {
        return await write();
      } finally {
        took = performance.now() - start;
      }
    }, this.time.signal);
    const result = await this.time.orOver(work);
    if (took !== undefined) this.#chunk = nextChunk(this.#chunk, took);
    return result;
  }
}

/** The cgroup's count of OOM kills; `last` when it has gone meanwhile. */
function oomKillsOr(tree: LowerUsageTree, cgroup: CgroupPath, last: number): number {
  try {
    return tree.glanceAtMemory(cgroup).oomKills;
  } catch (error) {
    if (isCgroupVanished(error)) return last;
    throw error;
  }
}

function notReclaimable(cgroup: CgroupPath, target: Bytes, use: MemoryUse): ShimError {
  return new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.MEMORY_NOT_RECLAIMABLE,
    `${cgroup}: use cannot be brought under ${target} bytes: ${use.unreclaimable} bytes are in use that cannot be ` +
      `reclaimed (anon ${use.anon}, shmem ${use.shmem}, unevictable ${use.unevictable}, of ${use.current} in all)`,
    { file: `${cgroup}/memory.current`, asked: String(target), found: String(use.unreclaimable) },
  );
}

function timeout(cgroup: CgroupPath, target: Bytes, use: MemoryUse): ShimError {
  return new ShimError(
    Code.DEADLINE_EXCEEDED,
    Reason.RECLAIM_TIMEOUT,
    `${cgroup}: use could not be brought under ${target} bytes, to stay there, in the time there was: ${use.current} bytes are in use, ` +
      `${use.unreclaimable} of them cannot be reclaimed`,
    { file: `${cgroup}/memory.current`, asked: String(target), found: String(use.current) },
  );
}
