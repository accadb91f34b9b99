import { type HeldUsage, isCgroupVanished, lowerUsage, type MemoryUse } from '../../cgroups/index.ts';
import { type Bytes, bytes, type Clock, isRollbackFailure, messageOf, Reason, ShimError } from '../../core/index.ts';
import type { Blocked, Decrease, DecreaseReclaimerOptions, PendingDecreases } from './decrease.ts';
import { CHECK_INTERVAL_MS, CLIMB_MS, HOLD_MS, REACH_MS, STALL_MS, stuckFrom } from './decrease-policy.ts';

/** Why a hold has ended. */
export type HoldEnd =
  /** kubelet has applied one of the decreases, or has admitted other limits. */
  | 'changed'
  /** A request for the pod has arrived, or the pod is gone. */
  | 'released'
  /** The pod has an unfinished transaction, which may have lowered memory.high. */
  | 'unfinished'
  /** Another program has raised memory.high. */
  | 'lost'
  /** Unreclaimable memory has come close to the limit. */
  | 'stuck'
  /** Usage has climbed back to the limit, although memory.high is below it. */
  | 'climbed'
  /** kubelet has not applied the decrease in time. */
  | 'expired'
  /** Usage has not fallen in time, because other pods have used the slots for reclaim. */
  | 'starved'
  | { readonly error: unknown };

export interface UsageHoldOptions {
  /** End of the hold at the latest, in milliseconds of the steady clock. */
  readonly until: number;
  /** Called with bytes that reclaim has freed. Must not throw. */
  readonly onReclaimed: (freed: Bytes) => void;
  /** Called when all usage is below its limit. Must not throw. */
  readonly onHeld: () => void;
  /** Called once if usage does not fall below its limit although reclaim continues. Must not throw. */
  readonly onStalled: (blocked: Blocked) => void;
}

/** The cgroup whose usage is lowered. Times in milliseconds of the steady clock. */
interface Lowering {
  readonly decrease: Decrease;
  lowest: number;
  /** When a check last found a decrease of usage, in milliseconds of {@link work}. */
  fellAt: number;
  /** Measures the time spent, without the time that it waits for a slot. */
  readonly work: WorkTime;
}

/** A cgroup whose usage is held. */
interface Level {
  readonly decrease: Decrease;
  readonly held: HeldUsage;
  /** When a check last found usage below the limit, in milliseconds of the steady clock. */
  belowAt: number;
  /** The usage at the last check. Undefined before the first check. */
  use?: MemoryUse;
}

/**
 * KEP-1287, lowering memory: brings the usage of one pod below its pending limits and holds it there through
 * memory.high, so that kubelet measures it: hot page cache grows again immediately, and kubelet compares with a figure
 * that is up to 15 s old. Containers come first and the pod last, each held while the next is lowered. Begins when
 * created. The caller makes sure that no section under the pod's lock runs meanwhile.
 */
export class UsageHold {
  /** Resolves once memory.high is restored. Never rejects. */
  readonly done: Promise<HoldEnd>;
  readonly #levels: Level[] = [];
  #lowering: Lowering | undefined;
  /** Whether the journal contains this hold. */
  #hasBegun = false;
  #hasStalled = false;
  #blocked: Blocked | undefined;
  /** The decrease that could not be lowered. */
  #failed: Blocked | undefined;
  readonly #over = new AbortController();
  /** Resolves when the hold is over. */
  readonly #whenOver: Promise<void>;
  readonly #sleep: Sleep;
  readonly #watching: Promise<HoldEnd>;
  /** Called with the result of the next check. */
  #asked: ((isCurrent: boolean) => void)[] = [];
  #heldUntil = Infinity;
  #heldFrom: number | undefined;

  constructor(
    private readonly uid: string,
    private readonly reclaimer: DecreaseReclaimerOptions,
    private readonly pending: PendingDecreases,
    private readonly options: UsageHoldOptions,
  ) {
    this.#sleep = new Sleep(reclaimer.clock);
    const { signal } = this.#over;
    this.#whenOver = new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    this.#watching = this.#watch();
    this.done = this.#run();
  }

  /** The decrease for which the hold ended, with its usage while held or lowered. Undefined if unknown. */
  get blocked(): Blocked | undefined {
    return this.#blocked;
  }

  /** Maximum time that usage is held below all limits, in milliseconds. */
  get heldMs(): number {
    return this.#heldFrom === undefined ? 0 : this.#heldUntil - this.#heldFrom;
  }

  /** Triggers a check: kubelet's state or the pod may have changed. */
  wake(): void {
    this.#sleep.wake();
  }

  /** Checks now. Resolves with true if the hold continues: kubelet has admitted no other limits. Never rejects. */
  isCurrent(): Promise<boolean> {
    if (this.#isOver()) return Promise.resolve(false);
    this.wake();
    return new Promise((resolve) => this.#asked.push(resolve));
  }

  /** Ends the hold. Resolves once memory.high is restored. Never rejects. */
  async release(): Promise<void> {
    this.#end();
    await this.done;
  }

  #end(): void {
    this.#over.abort(new Error('the hold is over'));
    this.#sleep.wake();
  }

  async #run(): Promise<HoldEnd> {
    const end = await this.#holdAll();
    this.#end();
    await this.#watching;
    const hasRestored = typeof end !== 'object' || !isRollbackFailure(end.error);
    // Otherwise the record is still needed. A hold that did not begin keeps the record of an earlier hold.
    const isEnded = !this.#hasBegun || (hasRestored && (await this.#endInJournal()));
    // A later hold would restore memory.high first, but there may be none: recovery has to do it.
    if (!isEnded) this.reclaimer.holds.left(this.uid);
    return end;
  }

  async #holdAll(): Promise<HoldEnd> {
    try {
      const cgroups = this.pending.list.map(({ cgroup }) => cgroup);
      this.#hasBegun = await this.reclaimer.holds.begin(this.uid, cgroups);
      if (!this.#hasBegun) return 'unfinished';
      await this.#lower(this.pending.list);
      return await this.#watching;
    } catch (error) {
      if (error === this.#over.signal.reason) return await this.#watching;
      if (this.#failed !== undefined) this.#blocked = this.#failed;
      return isTimeout(error) && this.#lowering !== undefined && this.#lowering.work.ms < STALL_MS
        ? 'starved'
        : { error };
    }
  }

  /** Removes the hold's record. Returns false on failure, which is not fatal: recovery checks memory.high again. */
  async #endInJournal(): Promise<boolean> {
    try {
      await this.reclaimer.holds.end(this.uid);
      return true;
    } catch (error) {
      this.reclaimer.log.warn({ uid: this.uid, error: messageOf(error) }, 'end of a hold not journalled');
      return false;
    }
  }

  /** Lowers the usage of each cgroup and holds it, until the watch ends. */
  async #lower([first, ...rest]: readonly Decrease[]): Promise<void> {
    if (first === undefined) {
      this.#heldFrom = this.reclaimer.clock.now();
      this.#heldUntil = Math.min(this.#heldFrom + HOLD_MS, this.options.until);
      this.options.onHeld();
      await this.#watching;
      return;
    }
    const { tree, clock, holds, log } = this.reclaimer;
    const { cgroup, to } = first;
    const work = new WorkTime(clock);
    this.#lowering = { decrease: first, lowest: Infinity, fellAt: 0, work };
    let reclaimed = 0;
    const lowered = lowerUsage(tree, cgroup, {
      target: to,
      swapAfter: this.pending.swapAfter,
      deadline: Math.min(clock.now() + REACH_MS, this.options.until),
      clock,
      signal: this.#over.signal,
      onHigh: (memoryHigh) => holds.lowers(this.uid, { cgroup, memoryHigh }),
      onWaiting: (isWaiting) => work.setWaiting(isWaiting),
      onReclaimed: (freed) => {
        reclaimed += freed;
        this.options.onReclaimed(freed);
      },
      lower: async (held) => {
        if (reclaimed > 0)
          log.info({ uid: this.uid, cgroup, target: to, reclaimed: bytes(reclaimed) }, 'memory reclaimed for kubelet');
        this.#lowering = undefined;
        this.#levels.push({ decrease: first, held, belowAt: clock.now() });
        try {
          await this.#lower(rest);
        } finally {
          // memory.high is restored next, so no check may run meanwhile.
          this.#end();
          await this.#watching;
        }
      },
    });
    await lowered.catch((error: unknown) => this.#failedToLower(first, error));
  }

  /** Reads the usage before memory.high of the other cgroups is restored, and throws the error. */
  async #failedToLower(decrease: Decrease, error: unknown): Promise<never> {
    if (error !== this.#over.signal.reason && this.#lowering?.decrease === decrease) {
      const use = await this.#useOf(decrease).catch(() => undefined);
      if (use !== undefined) this.#failed = { ...decrease, use };
    }
    throw error;
  }

  #useOf({ cgroup }: Decrease): Promise<MemoryUse> {
    return this.reclaimer.tree.readMemoryUse(cgroup, this.pending.swapAfter);
  }

  /** Checks every second, and when kubelet's state may have changed, until the hold has to end. Never rejects. */
  async #watch(): Promise<HoldEnd> {
    try {
      for (;;) {
        await this.#sleep.for(CHECK_INTERVAL_MS);
        this.#sleep.reset();
        const asked = this.#asked.splice(0);
        const end = await this.#check().catch((error: unknown) => ({ error }));
        for (const answer of asked) answer(end === undefined);
        if (end !== undefined) return end;
      }
    } finally {
      this.#end();
      for (const answer of this.#asked.splice(0)) answer(false);
    }
  }

  async #check(): Promise<HoldEnd | undefined> {
    if (this.#over.signal.aborted) return 'released';
    // This may ask the backend. A request that ends the hold does not wait for the answer.
    const pending = await Promise.race([this.reclaimer.decreases(this.uid), this.#whenOver]);
    if (this.#isOver()) return 'released';
    if (pending === undefined || !isSame(pending, this.pending)) return 'changed';
    for (const level of this.#levels) {
      const end = await this.#checkLevel(level);
      if (end !== undefined) return end;
      if (this.#isOver()) return 'released';
    }
    if (this.#lowering !== undefined && !this.#hasStalled) await this.#checkLowering(this.#lowering);
    if (this.reclaimer.clock.now() < this.#heldUntil) return undefined;
    const [level] = this.#levels;
    if (level?.use !== undefined) this.#blocked = { ...level.decrease, use: level.use };
    return 'expired';
  }

  async #checkLevel(level: Level): Promise<HoldEnd | undefined> {
    const { to } = level.decrease;
    const { use, isHeld } = await level.held.look();
    level.use = use;
    if (!isHeld) {
      this.#blocked = { ...level.decrease, use };
      return 'lost';
    }
    const now = this.reclaimer.clock.now();
    if (use.current < to) level.belowAt = now;
    const isStuck = use.unreclaimable >= stuckFrom(to);
    if (!isStuck && now - level.belowAt < CLIMB_MS) return undefined;
    this.#blocked = { ...level.decrease, use };
    return isStuck ? 'stuck' : 'climbed';
  }

  /** Reports usage that stays above the limit despite reclaim. */
  async #checkLowering(lowering: Lowering): Promise<void> {
    const { decrease } = lowering;
    const use = await this.#useOf(decrease);
    const worked = lowering.work.ms;
    if (use.current < lowering.lowest) lowering.fellAt = worked;
    lowering.lowest = Math.min(lowering.lowest, use.current);
    if (
      use.current < decrease.to ||
      worked - lowering.fellAt < STALL_MS ||
      this.#lowering !== lowering ||
      this.#isOver()
    )
      return;
    this.#hasStalled = true;
    this.options.onStalled({ ...decrease, use });
  }

  /** Whether the hold is over, possibly since an await. */
  #isOver(): boolean {
    return this.#over.signal.aborted;
  }
}

/** Whether no decrease was applied and kubelet has admitted no other limits. */
const isSame = (one: PendingDecreases, other: PendingDecreases): boolean =>
  one.admitted === other.admitted &&
  one.list.length === other.list.length &&
  one.list.every(({ cgroup, to }, at) => cgroup === other.list[at]?.cgroup && to === other.list[at].to);

const isTimeout = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.RECLAIM_TIMEOUT;

/** Whether a hold has ended because its cgroup no longer exists. */
export const hasVanished = (end: HoldEnd): boolean => typeof end === 'object' && isCgroupVanished(end.error);

/** Waits that can be ended early. For one caller at a time. */
export class Sleep {
  #isAwake = false;
  #end: () => void = () => undefined;

  constructor(private readonly clock: Clock) {}

  /** Whether {@link wake} has been called since the last {@link reset}. */
  get isAwake(): boolean {
    return this.#isAwake;
  }

  reset(): void {
    this.#isAwake = false;
  }

  /** Ends the present wait, or the next one. */
  wake(): void {
    this.#isAwake = true;
    this.#end();
  }

  /** Waits for this many milliseconds, or until {@link wake} is called. Infinity: only until then. */
  async for(ms: number): Promise<void> {
    if (this.#isAwake || ms === 0) return;
    let stop = (): void => undefined;
    await new Promise<void>((resolve) => {
      this.#end = resolve;
      if (Number.isFinite(ms)) stop = this.clock.after(ms, resolve);
    });
    stop();
    this.#end = () => undefined;
  }
}

/** Measures the time of an activity without the time that it waits. Begins when created. */
class WorkTime {
  #since: number | undefined;
  #done = 0;

  constructor(private readonly clock: Clock) {
    this.#since = clock.now();
  }

  /** The time so far, in milliseconds. */
  get ms(): number {
    return this.#done + (this.#since === undefined ? 0 : this.clock.now() - this.#since);
  }

  setWaiting(isWaiting: boolean): void {
    this.#done = this.ms;
    this.#since = isWaiting ? undefined : this.clock.now();
  }
}
