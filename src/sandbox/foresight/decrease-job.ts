import { isCgroupVanished } from '../../cgroups/index.ts';
import { bytes, messageOf, Reason, ShimError } from '../../core/index.ts';
import { Comparison, type UsageSource } from './comparison.ts';
import {
  afterHoldMessage,
  type Blocked,
  climbedMessage,
  type DecreaseProgress,
  type DecreaseReclaimerOptions,
  type DecreaseReport,
  type DeferredListener,
  isApplied,
  newProgress,
  type PendingDecreases,
  refusalOf,
  stalledMessage,
  stuckMessage,
} from './decrease.ts';
import {
  type Assessment,
  assessDecrease,
  backoffMs,
  CHECK_INTERVAL_MS,
  MAX_LOSSES,
  RECLAIM_PERIOD_MS,
  REPORT_AGAIN_MS,
} from './decrease-policy.ts';
import { type HoldEnd, hasVanished, Sleep, UsageHold } from './usage-hold.ts';

/** Whether to hold although usage is below the limits: kubelet's next figure may have been measured earlier. */
const isExpected = (progress: DecreaseProgress): boolean =>
  progress.wasBlocked || (progress.isInterrupted && refusalOf(progress) === undefined);

type Assessed = Blocked & { readonly assessment: Assessment };

/** Returns the first decrease that usage blocks, otherwise the first one. */
const firstBlocked = (assessed: readonly Assessed[]): Assessed | undefined =>
  assessed.find(({ assessment }) => assessment !== 'fits') ?? assessed[0];

/** KEP-1287, lowering memory: handles a pod's decreases from kubelet's admission until kubelet applies them. */
export class DecreaseJob {
  report: DecreaseReport | undefined;
  #progress: DecreaseProgress | undefined;
  #hold: UsageHold | undefined;
  readonly #sleep: Sleep;
  readonly #comparison: Comparison;
  #hasEnded = false;

  constructor(
    readonly uid: string,
    readonly options: DecreaseReclaimerOptions,
    readonly listeners: readonly DeferredListener[],
  ) {
    this.#sleep = new Sleep(options.clock);
    this.#comparison = new Comparison(options);
  }

  /** Triggers a check: kubelet's state or the pod may have changed. */
  wake(): void {
    this.#sleep.wake();
    this.#hold?.wake();
  }

  /**
   * Ends the present hold: a request for the pod begins. Resolves once memory.high is restored; undefined when there is
   * no hold. The next check runs after the request, which may apply the pending decrease.
   */
  release(): Promise<void> | undefined {
    this.#sleep.wake();
    return this.#hold?.release();
  }

  /** Resolves when kubelet may compare the pod's usage with its pending limits. Never rejects. */
  comparable(source: UsageSource): Promise<void> {
    return this.#comparison.ready(source, () => this.#recheck());
  }

  /** Records that the runtime has reported the pod's usage to kubelet. */
  measuredByRuntime(): void {
    this.#comparison.measuredByRuntime();
  }

  /** Allows kubelet to compare from now on. */
  openComparison(): void {
    this.#comparison.openForGood();
  }

  end(): void {
    this.#hasEnded = true;
    void this.#hold?.release();
    this.wake();
  }

  /** Runs until nothing is pending or the pod ends, with memory.high restored. Never rejects. */
  async run(): Promise<void> {
    const { log } = this.options;
    try {
      while (!this.#isOver()) {
        const waitMs = await this.#check();
        // Further changes do not delay kubelet: they occur all the time, and the next check handles them.
        if (waitMs !== 0) this.#comparison.open();
        // A wake-up during the check requires another one.
        if (waitMs === undefined && !this.#sleep.isAwake) return;
        await this.#sleep.for(waitMs ?? 0);
      }
    } catch (error) {
      // A pod that has ended needs no job. After any other error, kubelet's next write starts a new job.
      if (!isCgroupVanished(error) && !this.#isOver())
        log.warn({ uid: this.uid, error: messageOf(error) }, 'reclaim for a pending kubelet memory decrease failed');
    } finally {
      this.openComparison();
    }
  }

  /** Checks what kubelet has admitted until now. Resolves with false if it must be called again. Never rejects. */
  async #recheck(): Promise<boolean> {
    const hold = this.#hold;
    if (hold !== undefined && (await hold.isCurrent())) return true;
    if (this.#hold !== hold) return false;
    this.wake();
    return this.#comparison.nextCheck();
  }

  /** Whether {@link end} was called, possibly during an await. */
  #isOver(): boolean {
    return this.#hasEnded;
  }

  /** Returns how long to wait until the next check, in milliseconds; undefined when nothing is left to do. */
  async #check(): Promise<number | undefined> {
    // A resize in progress reclaims for itself, and may be kubelet's own.
    await this.options.idle(this.uid);
    this.#sleep.reset();
    this.#comparison.checkBegins();
    const { clock, counters } = this.options;
    const decreases = await this.options.decreases(this.uid);
    if (decreases === undefined || decreases.list.length === 0) {
      // If kubelet has restarted the container instead, no reclaim was needed.
      const last = this.#progress?.admitted === decreases?.admitted ? this.#progress : undefined;
      if (decreases !== undefined && last?.isStuck === true && last.wasHeld && isApplied(last, decreases.limits))
        this.#unstuck(last);
      return undefined;
    }
    const progress = this.#progressOf(decreases.admitted);
    for (const { text, to } of decreases.list) progress.asked.set(text, to);
    if (progress.isOver) return Infinity;
    const assessed = await this.#assess(decreases);
    if (!this.#isAsked(progress, decreases)) {
      // kubelet gets the usage of containers from the runtime, which measures at each call.
      progress.wasBlocked ||= assessed.some(({ isPod, assessment }) => isPod === true && assessment !== 'fits');
      // A call of kubelet or its next write triggers a check.
      return Infinity;
    }
    this.#lookForRefusal(progress, decreases);
    if (!progress.isStuck && assessed.some(({ assessment }) => assessment !== 'fits')) {
      progress.isStuck = true;
      counters.foresight('stuck');
    }
    if (clock.now() - progress.since >= RECLAIM_PERIOD_MS) return this.#giveUp(progress);
    return this.#act(progress, decreases, assessed);
  }

  /**
   * Whether kubelet compares usage with the limits, as it does in its first attempt. Before that, it may restart a
   * container to apply the limit (resizePolicy), and it skips a container that does not run: these limits are not
   * applied then, or others are.
   */
  #isAsked(progress: DecreaseProgress, { isPodLevel }: PendingDecreases): boolean {
    if (!progress.isAsked && (isPodLevel || this.#comparison.isAsked)) {
      progress.isAsked = true;
      progress.since = this.options.clock.now();
    }
    return progress.isAsked;
  }

  /** Records how the request that ended the last hold has ended and, after failed kubelet updates, the last request. */
  #lookForRefusal(progress: DecreaseProgress, { list }: PendingDecreases): void {
    const { releasedSince: since, refusal: last } = progress;
    if (since === undefined && refusalOf(progress) === undefined) return;
    progress.releasedSince = undefined;
    const found = this.options.refusalOf(this.uid, list);
    progress.refusal = since === undefined || (found?.at ?? 0) >= since ? found : undefined;
    if (progress.refusal === undefined) progress.refusals = 0;
    else if (since !== undefined) progress.refusals += 1;
    const refusal = refusalOf(progress);
    if (refusal === undefined || refusal.at === last?.at) return;
    this.#defer(progress, refusal.reason, refusal.message);
    this.#tryAgain(progress);
  }

  #assess({ list, swapAfter }: PendingDecreases): Promise<readonly Assessed[]> {
    return Promise.all(
      list.map(async (each): Promise<Assessed> => {
        const use = await this.options.tree.readMemoryUse(each.cgroup, swapAfter);
        return { ...each, use, assessment: assessDecrease(each.to, use) };
      }),
    );
  }

  /** Holds or reports, depending on the assessments. Returns the time until the next check, in milliseconds. */
  async #act(progress: DecreaseProgress, decreases: PendingDecreases, assessed: readonly Assessed[]): Promise<number> {
    const wait = progress.notBefore - this.options.clock.now();
    const stuck = assessed.find(({ assessment }) => assessment === 'stuck');
    // kubelet applies all decreases or none: while one is stuck, holding the others is useless.
    if (stuck !== undefined) {
      this.#defer(progress, Reason.MEMORY_NOT_RECLAIMABLE, stuckMessage(stuck));
      return wait > 0 ? wait : this.#tryAgain(progress);
    }
    const blocked =
      assessed.find(({ assessment }) => assessment === 'blocked') ?? (isExpected(progress) ? assessed[0] : undefined);
    if (blocked === undefined) {
      this.#inProgress(progress, 'memory usage is below the new limit: waiting for kubelet to apply it');
      return CHECK_INTERVAL_MS;
    }
    if (wait > 0) return wait;
    // No await from here until the hold is created, so that no section under the lock can begin.
    if (this.#isOver() || this.options.isBusy(this.uid)) return 0;
    // A deferred decrease stays so until usage is held.
    if (this.report?.state !== 'Deferred')
      this.#inProgress(progress, `${blocked.text}: reclaiming memory to bring usage below ${blocked.to} bytes`);
    const begunAt = this.options.clock.wallTime();
    const hold = this.#beginHold(progress, decreases);
    const end = await this.#ended(hold);
    if (end === 'released') progress.releasedSince = begunAt;
    return this.#afterHold(progress, end, hold);
  }

  #beginHold(progress: DecreaseProgress, decreases: PendingDecreases): UsageHold {
    const { counters } = this.options;
    const isRefused = refusalOf(progress) !== undefined;
    const hold = new UsageHold(this.uid, this.options, decreases, {
      until: progress.since + RECLAIM_PERIOD_MS,
      onReclaimed: (freed) => {
        progress.reclaimed += freed;
        counters.foresightReclaimed(freed);
      },
      onHeld: () => {
        progress.wasBlocked = false;
        progress.wasHeld = true;
        counters.foresight('held');
        if (!isRefused) this.#comparison.held(decreases.list.find(({ isPod }) => isPod)?.cgroup);
        this.#inProgress(progress, 'memory usage is held below the new limit: waiting for kubelet to apply it');
      },
      onStalled: (blocked) => {
        // kubelet's worker for the pod is blocked until comparisons are open.
        this.#comparison.open();
        this.#defer(progress, Reason.RECLAIM_TIMEOUT, stalledMessage(blocked));
      },
    });
    this.#hold = hold;
    this.#comparison.holdBegins();
    // kubelet's worker for the pod is blocked while its call waits, and its update fails for another reason.
    if (isRefused) this.#comparison.open();
    return hold;
  }

  async #ended(hold: UsageHold): Promise<HoldEnd> {
    const { clock, log } = this.options;
    const start = clock.now();
    const end = await hold.done;
    this.#hold = undefined;
    this.#comparison.block();
    const why = typeof end === 'object' ? messageOf(end.error) : end;
    log.info({ uid: this.uid, end: why, ms: Math.round(clock.now() - start) }, 'hold of memory usage ended');
    return end;
  }

  /** @param hold the ended hold; its `blocked` is the decrease it ended for, with the usage at that time */
  async #afterHold(progress: DecreaseProgress, end: HoldEnd, hold: UsageHold): Promise<number> {
    const found = hold.blocked;
    if (hasVanished(end)) throw (end as { readonly error: unknown }).error;
    progress.isInterrupted = end === 'changed' || end === 'released' || end === 'lost';
    progress.losses = end === 'lost' ? progress.losses + 1 : 0;
    if (end === 'changed' || end === 'released') return 0;
    if (end === 'unfinished') return CHECK_INTERVAL_MS;
    if (end === 'stuck') {
      // Reports immediately, with the figures of the hold: the next check might not find fluctuating usage stuck.
      if (found !== undefined) this.#defer(progress, Reason.MEMORY_NOT_RECLAIMABLE, stuckMessage(found));
      this.#tryAgain(progress);
      return 0;
    }
    // The pod is not the cause, so nothing is reported.
    if (end === 'starved') return this.#tryAgain(progress);
    if (end === 'climbed') {
      if (found !== undefined) this.#defer(progress, Reason.RECLAIM_TIMEOUT, climbedMessage(found));
    } else if (end !== 'lost' || progress.losses >= MAX_LOSSES) await this.#deferAfter(progress, end, hold);
    return this.#tryAgain(progress);
  }

  /** Defers the decreases with the hold's figures. Uses present figures if the hold lowered nothing. */
  async #deferAfter(
    progress: DecreaseProgress,
    end: 'lost' | 'expired' | { readonly error: unknown },
    hold: UsageHold,
  ): Promise<void> {
    const decreases = await this.options.decreases(this.uid);
    if (decreases === undefined || decreases.admitted !== progress.admitted) return;
    // kubelet has tried before or during the hold.
    if (end === 'expired' && progress.refusal !== undefined) {
      this.#defer(progress, progress.refusal.reason, progress.refusal.message);
      return;
    }
    const blocked = hold.blocked ?? firstBlocked(await this.#assess(decreases));
    if (blocked === undefined) return;
    const isOfHold = end === 'lost' || end === 'expired' || !(end.error instanceof ShimError);
    this.#defer(
      progress,
      isOfHold ? Reason.RECLAIM_TIMEOUT : end.error.reason,
      afterHoldMessage(blocked, end, hold.heldMs),
    );
  }

  #progressOf(admitted: string): DecreaseProgress {
    if (this.#progress?.admitted === admitted) return this.#progress;
    this.report = undefined;
    return (this.#progress = newProgress(admitted, this.options.clock.now(), this.options.clock.wallTime()));
  }

  #tryAgain(progress: DecreaseProgress): number {
    progress.times += 1;
    const now = this.options.clock.now();
    const wait = backoffMs(progress.times, now - progress.since);
    progress.notBefore = now + wait;
    return wait;
  }

  #inProgress(progress: DecreaseProgress, message: string): void {
    // Usage never blocked this decrease, or something other than usage blocks it: there is nothing to report.
    if (!progress.isStuck || refusalOf(progress) !== undefined) return;
    this.#setReport(progress, 'InProgress', undefined, message);
  }

  #defer(progress: DecreaseProgress, reason: string, message: string): void {
    this.#setReport(progress, 'Deferred', reason, message);
    const [now, last] = [this.options.clock.now(), progress.reported.get(reason)];
    if (last !== undefined && now - last < REPORT_AGAIN_MS) return;
    progress.reported.set(reason, now);
    if (last === undefined) this.options.counters.foresight('deferred');
    this.options.log.warn({ uid: this.uid, reason, error: message }, 'memory decrease admitted by kubelet deferred');
    this.#tellListeners();
  }

  #tellListeners(): void {
    const { report } = this;
    if (report !== undefined) for (const listener of this.listeners) listener(this.uid, report);
  }

  #giveUp(progress: DecreaseProgress): number | undefined {
    progress.isOver = true;
    if (!progress.isStuck) return Infinity;
    const why =
      this.report?.state === 'Deferred' ? this.report.message : 'memory usage kept rising again after reclaim';
    const reason = this.report?.reason ?? Reason.RECLAIM_TIMEOUT;
    this.#setReport(progress, 'Deferred', reason, `given up after ${RECLAIM_PERIOD_MS / 60_000} minutes: ${why}`);
    this.options.counters.foresight('given_up');
    this.options.log.warn(
      { uid: this.uid, reclaimed: progress.reclaimed },
      'reclaim for memory decrease admitted by kubelet given up',
    );
    this.#tellListeners();
    return Infinity;
  }

  #unstuck({ since, reclaimed }: DecreaseProgress): void {
    const ms = Math.round(this.options.clock.now() - since);
    this.options.counters.foresight('unstuck');
    this.options.log.info({ uid: this.uid, ms, reclaimed }, 'memory decrease applied by kubelet after reclaim');
  }

  #setReport(
    progress: DecreaseProgress,
    state: DecreaseReport['state'],
    reason: string | undefined,
    message: string,
  ): void {
    this.report = { state, reason, message, since: progress.seenAt, reclaimed: bytes(progress.reclaimed) };
  }
}
