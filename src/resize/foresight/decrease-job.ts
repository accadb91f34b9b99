import { type MemoryUse, ReclaimAhead, isCgroupVanished } from '../../cgroups/index.ts';
import { Reason, messageOf } from '../../core/errors/index.ts';
import { bytes } from '../../core/quantities/index.ts';
import type { Decrease, DecreaseReclaimerParts, DecreaseReport, DeferredListener } from './decrease.ts';
import {
  type Assessment,
  RECLAIM_PERIOD_MS,
  CHECK_INTERVAL_MS,
  MAX_IDLE_STEPS,
  assessDecrease,
  backoffMs,
  idleMs,
  marginOf,
  restMs,
} from './decrease-policy.ts';
import type { ReclaimPacer } from './reclaim-pacer.ts';

/** The state of one admitted set of decreases. */
interface Progress {
  readonly admitted: string;
  readonly since: number;
  reclaimed: number;
  /** Number of rounds of reclaim, successful or not. */
  times: number;
  /** Earliest time of the next round. */
  notBefore: number;
  isStuck: boolean;
  isOver: boolean;
  readonly reported: Set<Reason>;
}

type Assessed = Decrease & { readonly use: MemoryUse; readonly assessment: Assessment };

/** Reclaims memory for the decreases of one pod, from their admission by kubelet until kubelet has applied them. */
export class DecreaseJob {
  report: DecreaseReport | undefined;
  #progress: Progress | undefined;
  #wake: () => void = () => undefined;
  #isAwake = false;
  readonly #ended = new AbortController();

  constructor(
    readonly uid: string,
    readonly parts: DecreaseReclaimerParts,
    readonly pacer: ReclaimPacer,
    readonly listeners: readonly DeferredListener[],
  ) {}

  /** Triggers a check: kubelet's state or the pod may have changed. */
  wake(): void {
    this.#isAwake = true;
    this.#wake();
  }

  end(): void {
    this.#ended.abort(new Error('the pod is gone'));
    this.wake();
  }

  /** Runs until nothing is pending or the pod ends. Never rejects. */
  async run(): Promise<void> {
    const { log } = this.parts;
    try {
      while (!this.#ended.signal.aborted) {
        const waitMs = await this.#check();
        // A wake-up during the check requires another one.
        if (waitMs === undefined && !this.#isAwake) return;
        await this.#sleep(waitMs ?? 0);
      }
    } catch (error) {
      // A pod that has ended needs no reclaim. After any other error kubelet's next write starts a new job.
      if (!isCgroupVanished(error) && !this.#ended.signal.aborted)
        log.warn({ uid: this.uid, error: messageOf(error) }, 'reclaim for a pending kubelet memory decrease failed');
    }
  }

  /** Returns how long to wait until the next check, in milliseconds; undefined when nothing is left to do. */
  async #check(): Promise<number | undefined> {
    // A resize in progress reclaims for itself, and may be kubelet's own.
    await this.parts.idle(this.uid);
    this.#isAwake = false;
    const { clock, counters, tree } = this.parts;
    const decreases = await this.parts.decreases(this.uid);
    if (decreases === undefined || decreases.list.length === 0) {
      if (this.#progress?.isStuck === true && decreases?.admitted === this.#progress.admitted)
        this.#unstuck(this.#progress);
      return undefined;
    }
    const progress = this.#progressOf(decreases.admitted);
    if (progress.isOver) return Infinity;
    const assessed = await Promise.all(
      decreases.list.map(async (each): Promise<Assessed> => {
        const use = await tree.readMemoryUse(each.cgroup);
        return { ...each, use, assessment: assessDecrease(each.to, use) };
      }),
    );
    if (!progress.isStuck && assessed.some(({ assessment }) => assessment.kind !== 'fits')) {
      progress.isStuck = true;
      counters.foresight('stuck');
    }
    return clock.now() - progress.since >= RECLAIM_PERIOD_MS ? this.#giveUp(progress) : this.#act(progress, assessed);
  }

  /** Reclaims or reports, as the assessments require. Returns how long to wait until the next check, in milliseconds. */
  async #act(progress: Progress, assessed: readonly Assessed[]): Promise<number> {
    const wait = progress.notBefore - this.parts.clock.now();
    const stuck = assessed.find(({ assessment }) => assessment.kind === 'stuck');
    // kubelet applies all decreases or none: while one is stuck, reclaiming for the others is useless.
    if (stuck !== undefined) {
      this.#defer(progress, Reason.MEMORY_NOT_RECLAIMABLE, stuckMessage(stuck));
      return wait > 0 ? wait : this.#tryAgain(progress);
    }
    if (assessed.every(({ assessment }) => assessment.kind === 'fits')) {
      this.#inProgress(progress, 'memory usage is below the new limit: waiting for kubelet to apply it');
      return CHECK_INTERVAL_MS;
    }
    if (wait > 0) return wait;
    for (const each of assessed) {
      const end = await this.#reclaim(progress, each);
      if (end === 'interrupted') return 0;
      if (end === 'done') continue;
      const reason = end === 'none' ? Reason.MEMORY_NOT_RECLAIMABLE : Reason.RECLAIM_TIMEOUT;
      this.#defer(progress, reason, failureMessage(each, end));
      return this.#tryAgain(progress);
    }
    this.#tryAgain(progress);
    this.#inProgress(progress, 'memory was reclaimed below the new limit: waiting for kubelet to apply it');
    return CHECK_INTERVAL_MS;
  }

  /** Reclaims in steps with pauses, until the goal is reached, the pod changes, or nothing more is freed. */
  async #reclaim(progress: Progress, { cgroup, to, text, assessment }: Assessed): Promise<ReclaimEnd> {
    if (assessment.kind !== 'reclaim') return 'done';
    const { tree, counters, log } = this.parts;
    this.#inProgress(progress, `${text}: reclaiming memory to bring usage below ${to} bytes`);
    const ahead = new ReclaimAhead(tree, cgroup, assessment.goal);
    const { signal } = this.#ended;
    const before = progress.reclaimed;
    for (let idle = 0; ; ) {
      if (this.#isAwake || this.parts.isBusy(this.uid)) return 'interrupted';
      const step = await this.pacer.run(async () => {
        const result = await ahead.step(signal);
        return { result, restMs: result === undefined ? 0 : restMs(result.freed, result.ms) };
      }, signal);
      if (step === undefined) break;
      if (step.got === 'unsupported') return 'none';
      progress.reclaimed += step.freed;
      counters.foresightReclaimed(step.freed);
      idle = step.freed > 0 ? 0 : idle + 1;
      if (idle < MAX_IDLE_STEPS) {
        if (idle > 0) await this.#sleep(idleMs(idle));
        continue;
      }
      if (step.after < to) break;
      return 'stalled';
    }
    log.info(
      { uid: this.uid, cgroup, target: to, reclaimed: progress.reclaimed - before },
      'memory reclaimed for kubelet',
    );
    return 'done';
  }

  #progressOf(admitted: string): Progress {
    if (this.#progress?.admitted === admitted) return this.#progress;
    this.report = undefined;
    return (this.#progress = {
      admitted,
      since: this.parts.clock.now(),
      reclaimed: 0,
      times: 0,
      notBefore: 0,
      isStuck: false,
      isOver: false,
      reported: new Set(),
    });
  }

  #tryAgain(progress: Progress): number {
    progress.times += 1;
    const wait = backoffMs(progress.times);
    progress.notBefore = this.parts.clock.now() + wait;
    return wait;
  }

  #inProgress(progress: Progress, message: string): void {
    // Usage never blocked this decrease, so there is nothing to report.
    if (!progress.isStuck) return;
    this.#setReport(progress, 'InProgress', undefined, message);
  }

  #defer(progress: Progress, reason: Reason, message: string): void {
    this.#setReport(progress, 'Deferred', reason, message);
    if (progress.reported.has(reason) || this.report === undefined) return;
    progress.reported.add(reason);
    this.parts.counters.foresight('deferred');
    this.parts.log.warn({ uid: this.uid, reason, error: message }, 'memory decrease admitted by kubelet deferred');
    for (const listener of this.listeners) listener(this.uid, this.report);
  }

  #giveUp(progress: Progress): number | undefined {
    progress.isOver = true;
    if (!progress.isStuck) return Infinity;
    const why =
      this.report?.state === 'Deferred' ? this.report.message : 'memory usage kept rising again after reclaim';
    const reason = this.report?.reason ?? Reason.RECLAIM_TIMEOUT;
    this.#setReport(progress, 'Deferred', reason, `given up after ${RECLAIM_PERIOD_MS / 60_000} minutes: ${why}`);
    this.parts.counters.foresight('given_up');
    this.parts.log.warn(
      { uid: this.uid, reclaimed: progress.reclaimed },
      'reclaim for memory decrease admitted by kubelet given up',
    );
    return Infinity;
  }

  #unstuck({ since, reclaimed }: Progress): void {
    const ms = this.parts.clock.now() - since;
    this.parts.counters.foresight('unstuck');
    this.parts.log.info({ uid: this.uid, ms, reclaimed }, 'memory decrease applied by kubelet after reclaim');
  }

  #setReport(progress: Progress, state: DecreaseReport['state'], reason: Reason | undefined, message: string): void {
    this.report = { state, reason, message, since: progress.since, reclaimed: bytes(progress.reclaimed) };
  }

  /** Waits for this many milliseconds, or until {@link wake} is called. */
  async #sleep(ms: number): Promise<void> {
    if (this.#isAwake || ms === 0) return;
    let stop = (): void => undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (Number.isFinite(ms)) stop = this.parts.clock.after(ms, resolve);
    });
    stop();
    this.#wake = () => undefined;
  }
}

/** `stalled`: nothing more is freed; `none`: the kernel has no memory.reclaim. */
type ReclaimEnd = 'done' | 'interrupted' | 'stalled' | 'none';

const stuckMessage = ({ text, from, to, use }: Assessed): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}, but ${use.unreclaimable} bytes are in use that cannot ` +
  `be reclaimed (anon ${use.anon}, shmem ${use.shmem}, unevictable ${use.unevictable}; memory.current ${use.current}): expected less than ` +
  `${to - marginOf(to)}`;

const failureMessage = ({ text, from, to, use }: Assessed, end: 'stalled' | 'none'): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}, but ${use.current} bytes are in use: ` +
  (end === 'none'
    ? 'this kernel has no memory.reclaim (expected Linux 5.19 or later)'
    : `reclaim frees no more of the ${use.current - use.unreclaimable} reclaimable bytes`);
