/** Lowers the memory usage of a cgroup below its next limit, without OOM kills. */
import {
  type Bytes,
  bytes,
  type Clock,
  Code,
  type Limit,
  Reason,
  ShimError,
  Slots,
  systemClock,
  TimeLimit,
} from '../core/index.ts';
import { type CgroupPath, isCgroupVanished } from './file.ts';
import { TemporaryMemoryHigh } from './memory-high.ts';
import { type MemorySample, type MemoryUse, usageText } from './memory-use.ts';
import { FIRST_CHUNK, Growth, goalOf, hasEnoughMargin, nextChunk, pauseAfter } from './reclaim-pace.ts';
import type { SwapLimits } from './swap.ts';
import type { CgroupTree, Reclaimed } from './tree.ts';

export interface LowerUsageOptions<Lowered = void> {
  /** The new limit of the cgroup, in bytes. */
  readonly target: Bytes;
  /** When usage must be below the target, in milliseconds of the steady clock. Does not limit `lower`. */
  readonly deadline: number;
  readonly signal?: AbortSignal;
  /**
   * Awaited before memory.high is changed, with the value to restore: for the journal. Called again only if another
   * process has written another value in between.
   */
  readonly onHigh?: (previous: Limit<Bytes>) => Promise<void>;
  /**
   * Sets the limit. Called when usage is below the target, while memory.high still keeps it there: otherwise a process
   * that allocates fast exceeds the limit again before the runtime has written it. Its rejection is rethrown.
   */
  readonly lower: (held: HeldUsage) => Promise<Lowered>;
  /** The memory.high that `lower` sets. If absent, memory.high is restored to its previous value. */
  readonly newHigh?: Limit<Bytes> | undefined;
  /** The swap limits that `lower` sets or may set. Swap usage above them counts as not reclaimable. */
  readonly swapAfter?: SwapLimits | undefined;
  /** Called with the bytes that each write has freed. Must not throw. */
  readonly onReclaimed?: (freed: Bytes) => void;
  /** Called with true when a write begins to wait for a slot, and with false when it gets one. Must not throw. */
  readonly onWaiting?: (isWaiting: boolean) => void;
  /** The clock of `deadline`. */
  readonly clock?: Clock;
}

/** Usage that memory.high holds below the target while {@link LowerUsageOptions.lower} runs. */
export interface HeldUsage {
  /**
   * Reads the usage. Raises memory.high when unreclaimable memory has grown: a lower value would only delay the
   * processes. Throws the errors of reading and writing.
   */
  look(): Promise<HeldLook>;
  /** Lowers usage that has grown above the target while `lower` waited. Rejects as {@link lowerUsage} does. */
  lowerAgain(): Promise<void>;
}

export interface HeldLook {
  readonly use: MemoryUse;
  /** Whether memory.high is still below the target: systemd or another program may have raised it. */
  readonly isHeld: boolean;
}

/** The result once usage is below the target. */
export interface LowerUsageResult<Lowered> {
  readonly before: MemorySample;
  /** Usage when it was below the target, before `lower`. */
  readonly reached: Pick<MemorySample, 'current'>;
  /** Number of writes to memory.reclaim. */
  readonly reclaims: number;
  /** Processes killed by the OOM killer in the cgroup meanwhile. Expected to be 0. */
  readonly oomKills: number;
  /** The result of `lower`. */
  readonly lowered: Lowered;
}

/** The methods that {@link lowerUsage} needs. */
export type LowerUsageTree = Pick<
  CgroupTree,
  | 'sampleMemory'
  | 'readMemoryCurrent'
  | 'readSwapCurrent'
  | 'readMemoryUse'
  | 'readHigh'
  | 'write'
  | 'reclaim'
  | 'holds'
>;

/** After this many checks in a row without a decrease, the rest counts as not reclaimable. */
const STALLED_CHECKS = 4;

/**
 * KEP-1287, lowering memory: brings memory.current of a cgroup below `target` through memory.high and memory.reclaim
 * (kernel cgroup-v2), and holds it there while `lower` sets the limit. Does not change memory.max. memory.high follows
 * usage down in steps, so that processes do not allocate reclaimed memory again and are not delayed for being far above
 * it. It is restored before this settles.
 *
 * Rejects with MEMORY_NOT_RECLAIMABLE (FAILED_PRECONDITION, both values) as soon as unreclaimable memory is at or above
 * the target; RECLAIM_TIMEOUT (DEADLINE_EXCEEDED, both values) if usage is not below the target in time; the signal's
 * reason; CGROUP_UNAVAILABLE, CGROUP_WRITE_FAILED and CgroupVanished from reading and writing; UNDO_FAILED if
 * memory.high cannot be restored.
 */
export async function lowerUsage<Lowered>(
  tree: LowerUsageTree,
  cgroup: CgroupPath,
  options: LowerUsageOptions<Lowered>,
): Promise<LowerUsageResult<Lowered>> {
  const { clock = systemClock, target, swapAfter } = options;
  const time = new TimeLimit(options.deadline, options.signal, clock);
  const high = new TemporaryMemoryHigh(tree, cgroup, options.onHigh ?? (() => Promise.resolve()));
  const onReclaimed = options.onReclaimed ?? (() => undefined);
  const onWaiting = options.onWaiting ?? (() => undefined);
  const reclaim = new Reclaim(tree, cgroup, target, { time, clock, onReclaimed, onWaiting, swapAfter }, high);
  try {
    time.throwIfAborted();
    const before = tree.sampleMemory(cgroup);
    const reached = await reclaim.run(before.current);
    const lowered = await options.lower({
      look: () => lookAt(tree, cgroup, { target, swapAfter }, high),
      lowerAgain: () => reclaim.runAgain(),
    });
    await high.restore(undefined, options.newHigh);
    const kills = oomKillsOr(tree, cgroup, before.oomKills);
    return { before, reached, reclaims: reclaim.count, oomKills: kills - before.oomKills, lowered };
  } catch (error) {
    await high.restore(error);
    throw error;
  } finally {
    time.close();
  }
}

async function lookAt(
  tree: LowerUsageTree,
  cgroup: CgroupPath,
  { target, swapAfter }: Pick<LowerUsageOptions, 'target' | 'swapAfter'>,
  high: TemporaryMemoryHigh,
): Promise<HeldLook> {
  const use = await tree.readMemoryUse(cgroup, swapAfter);
  const limit = tree.readHigh(cgroup);
  const isHeld = limit !== 'max' && limit < target;
  if (isHeld && use.unreclaimable < target) await high.raiseTo(goalOf(target, use.unreclaimable));
  return { use, isHeld };
}

interface ReclaimOptions {
  readonly time: TimeLimit;
  readonly clock: Clock;
  readonly onReclaimed: (freed: Bytes) => void;
  readonly onWaiting: (isWaiting: boolean) => void;
  readonly swapAfter: SwapLimits | undefined;
}

class Reclaim {
  /** Writes to memory.reclaim. */
  count = 0;
  #chunk = FIRST_CHUNK;
  /** The last known value of memory.high; Infinity for `max`. */
  #held = Infinity;
  #lowest = Infinity;
  /** Number of checks in a row without a decrease. */
  #idle = 0;
  /** Whether to reclaim by lowering memory.high: kernels before 5.19 lack memory.reclaim. */
  #isByHigh = false;
  #growth = new Growth();
  readonly time: TimeLimit;

  constructor(
    readonly tree: LowerUsageTree,
    readonly cgroup: CgroupPath,
    readonly target: Bytes,
    readonly options: ReclaimOptions,
    readonly high: TemporaryMemoryHigh,
  ) {
    this.time = options.time;
  }

  /** Runs until usage is below the target. Returns that usage. */
  async run(first: Bytes): Promise<Pick<MemorySample, 'current'>> {
    for (let current = first; ; current = this.tree.readMemoryCurrent(this.cgroup)) {
      this.time.throwIfAborted();
      const goal = await this.#goal(current);
      if (this.#isReached(current, goal) && this.#isHeld() && (await this.#isSafe(current))) return { current };
      this.#note(current);
      const got = await this.#step(current, goal);
      // The kernel does not notify when usage falls (memory.events, the only file that can be watched, counts
      // failures). So this polls: immediately after progress, otherwise at most 100 times per second, and soon only 5
      // times.
      if (got === 'less' || this.#idle > 0) await this.time.pause(pauseAfter(this.#idle));
    }
  }

  /** Runs again after a pause. Discards the earlier observations of decreases and growth. */
  async runAgain(): Promise<void> {
    this.#idle = 0;
    this.#lowest = Infinity;
    this.#growth = new Growth();
    await this.run(this.tree.readMemoryCurrent(this.cgroup));
  }

  /** Returns the usage to reach. Throws MEMORY_NOT_RECLAIMABLE and RECLAIM_TIMEOUT. */
  async #goal(current: Bytes): Promise<Bytes> {
    const lowest = goalOf(this.target, bytes(0));
    // Usage is below any possible goal, so the kernel does not have to sum up memory.stat.
    if (current <= lowest && this.#isOutOfSwap()) return lowest;
    const use = await this.#use();
    this.time.throwIfAborted();
    if (use.unreclaimable >= this.target) throw notReclaimable(this.cgroup, this.target, use);
    const goal = goalOf(this.target, use.unreclaimable);
    if (this.time.isOver && !this.#isReached(use.current, goal)) throw timeout(this.cgroup, this.target, use);
    return goal;
  }

  #isReached(current: Bytes, goal: Bytes): boolean {
    if (current <= goal && this.#held <= goal) return true;
    // Below the target, but above the goal: the remaining memory cannot be reclaimed, or not in time.
    const isEnough = this.time.isOver || (this.#idle >= STALLED_CHECKS && this.#held < this.target);
    return isEnough && current < this.target;
  }

  /**
   * Whether usage stays below the target until the limit is set. Remaining page cache is harmless: the kernel reclaims
   * it at the limit. With a small margin, the other memory must not grow, because the kernel would kill processes. It
   * includes swappable memory: the kernel swaps more slowly than processes allocate.
   */
  async #isSafe(current: Bytes): Promise<boolean> {
    if (hasEnoughMargin(this.target, current) && this.#isOutOfSwap()) return true;
    const use = await this.#use();
    this.time.throwIfAborted();
    const inMemory = bytes(use.unreclaimable + use.swappable);
    if (hasEnoughMargin(this.target, inMemory)) return true;
    if (this.#growth.fits(inMemory, this.target - inMemory, this.options.clock.now())) return true;
    if (this.time.isOver) throw timeout(this.cgroup, this.target, use);
    return false;
  }

  #use(): Promise<MemoryUse> {
    return this.tree.readMemoryUse(this.cgroup, this.options.swapAfter);
  }

  /** Whether the cgroup has no memory in swap that could return to memory. */
  #isOutOfSwap(): boolean {
    return this.tree.readSwapCurrent(this.cgroup) === 0;
  }

  /** Whether memory.high is still set: systemd resets it, unset in the unit, when any unit property changes. */
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
    // At or above the current usage, so that the write itself does not reclaim on kernels that ignore O_NONBLOCK.
    await this.#hold(bytes(Math.max(goal, current)));
    if (current <= goal || this.time.isOver) return undefined;
    const amount = bytes(Math.min(this.#chunk, Math.max(current - goal, LEAST_AMOUNT)));
    const got = await this.#timed(() => this.tree.reclaim(this.cgroup, amount));
    if (got === 'unsupported') this.#isByHigh = true;
    else this.count += 1;
    if (got === 'all') this.options.onReclaimed(amount);
    else this.#reclaimedSince(current);
    return got;
  }

  async #stepByHigh(current: Bytes, goal: Bytes): Promise<undefined> {
    // The write itself reclaims. An unchanged value is not written again, so each step needs a lower value.
    const next = Math.min(Math.max(goal, current - this.#chunk), this.#held - LEAST_AMOUNT);
    const limit = bytes(Math.max(0, next));
    await this.#timed(() => this.#hold(limit));
    this.#reclaimedSince(current);
  }

  #reclaimedSince(before: Bytes): void {
    const freed = before - this.tree.readMemoryCurrent(this.cgroup);
    if (freed > 0) this.options.onReclaimed(bytes(freed));
  }

  async #hold(limit: Bytes): Promise<void> {
    const found = await this.time.orOver(this.high.lowerTo(limit));
    if (found !== undefined) this.#held = found === 'max' ? Infinity : found;
  }

  /** Runs a write that reclaims when a slot is free, and adapts the size of the next one to its duration. */
  async #timed<Result>(write: () => Promise<Result>): Promise<Result | undefined> {
    let took: number | undefined;
    const { onWaiting } = this.options;
    onWaiting(true);
    const work = reclaiming.run(async () => {
      onWaiting(false);
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

/** Returns the cgroup's number of OOM kills; `last` if the cgroup no longer exists. */
function oomKillsOr(tree: LowerUsageTree, cgroup: CgroupPath, last: number): number {
  try {
    return tree.sampleMemory(cgroup).oomKills;
  } catch (error) {
    if (isCgroupVanished(error)) return last;
    throw error;
  }
}

function notReclaimable(cgroup: CgroupPath, target: Bytes, use: MemoryUse): ShimError {
  return new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.MEMORY_NOT_RECLAIMABLE,
    `${cgroup}: usage cannot be lowered below ${target} bytes: ${use.unreclaimable} bytes in use cannot be reclaimed ` +
      `(${usageText(use)}, of ${use.current} in total)`,
    { file: `${cgroup}/memory.current`, asked: String(target), found: String(use.unreclaimable) },
  );
}

function timeout(cgroup: CgroupPath, target: Bytes, use: MemoryUse): ShimError {
  return new ShimError(
    Code.DEADLINE_EXCEEDED,
    Reason.RECLAIM_TIMEOUT,
    `${cgroup}: usage could not be lowered below ${target} bytes in time: ${use.current} bytes are in use, ` +
      `of which ${use.unreclaimable} cannot be reclaimed`,
    { file: `${cgroup}/memory.current`, asked: String(target), found: String(use.current) },
  );
}

/**
 * Limits writes that reclaim before they return, in the whole process. Each occupies one of the four threads of libuv's
 * pool, which cannot cancel a write. Two at most keep the other two threads free for all other files. With only one, a
 * cgroup whose pages are slow to reclaim (NFS) would block all others. A separate thread or process would cost
 * megabytes and could not cancel a write either; instead each write is short (see nextChunk). On the test node,
 * reclaiming 64 MiB of page cache takes 7 ms and delays the event loop by 3 to 5 ms.
 */
const reclaiming = new Slots(2);

/** Minimum bytes to reclaim: the largest page size of any architecture, since the kernel ignores less than a page. */
const LEAST_AMOUNT = 64 * 1024;
