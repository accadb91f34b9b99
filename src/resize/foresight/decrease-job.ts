import { type MemoryUse, ReclaimAhead, isCgroupVanished } from '../../cgroups/index.ts';
import { Reason, messageOf } from '../../core/errors/index.ts';
import { bytes } from '../../core/quantities/index.ts';
import type { Decrease, DecreaseHelpParts, DecreaseReport, DeferredListener } from './decrease.ts';
import {
  type Verdict,
  HELP_MS,
  LOOK_MS,
  MOST_IDLE_STEPS,
  backoffMs,
  idleMs,
  judge,
  marginOf,
  restMs,
} from './judge.ts';
import type { Turns } from './turns.ts';

/** What is known of a decrease since it was admitted. */
interface Effort {
  readonly admitted: string;
  readonly since: number;
  reclaimed: number;
  /** How often use was brought down, or could not be. */
  times: number;
  /** When it may be tried again. */
  notBefore: number;
  isStuck: boolean;
  isOver: boolean;
  readonly told: Set<Reason>;
}

type Judged = Decrease & { readonly use: MemoryUse; readonly verdict: Verdict };

/** One pod's decreases, from when they were admitted to when they are done. */
export class DecreaseJob {
  report: DecreaseReport | undefined;
  #effort: Effort | undefined;
  #wake: () => void = () => undefined;
  #isAwake = false;
  readonly #ended = new AbortController();

  constructor(
    readonly uid: string,
    readonly parts: DecreaseHelpParts,
    readonly turns: Turns,
    readonly listeners: readonly DeferredListener[],
  ) {}

  /** Something may have changed. */
  wake(): void {
    this.#isAwake = true;
    this.#wake();
  }

  end(): void {
    this.#ended.abort(new Error('the pod has gone'));
    this.wake();
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { log } = this.parts;
    try {
      while (!this.#ended.signal.aborted) {
        const waitMs = await this.#look();
        // Unless something has come while it was looked at.
        if (waitMs === undefined && !this.#isAwake) return;
        await this.#sleep(waitMs ?? 0);
      }
    } catch (error) {
      // It has ended, and kubelet finds out by itself. Else what kubelet writes next begins it anew.
      if (!isCgroupVanished(error) && !this.#ended.signal.aborted)
        log.warn({ uid: this.uid, error: messageOf(error) }, 'reclaim for a pending kubelet memory decrease failed');
    }
  }

  /** Gives how long to wait until the next look, in milliseconds; undefined when there is nothing more to do. */
  async #look(): Promise<number | undefined> {
    // A resize under way reclaims for itself, and may well be this one.
    await this.parts.idle(this.uid);
    this.#isAwake = false;
    const { clock, counters, tree } = this.parts;
    const decreases = await this.parts.decreases(this.uid);
    if (decreases === undefined || decreases.list.length === 0) {
      if (this.#effort?.isStuck === true && decreases?.admitted === this.#effort.admitted) this.#unstuck(this.#effort);
      return undefined;
    }
    const effort = this.#effortFor(decreases.admitted);
    if (effort.isOver) return Infinity;
    const judged = await Promise.all(
      decreases.list.map(async (each): Promise<Judged> => {
        const use = await tree.readMemoryUse(each.cgroup);
        return { ...each, use, verdict: judge(each.to, use) };
      }),
    );
    if (!effort.isStuck && judged.some(({ verdict }) => verdict.kind !== 'fits')) {
      effort.isStuck = true;
      counters.foresight('stuck');
    }
    return clock.now() - effort.since >= HELP_MS ? this.#giveUp(effort) : this.#act(effort, judged);
  }

  /** Does what can be done now. Gives as {@link #look} does. */
  async #act(effort: Effort, judged: readonly Judged[]): Promise<number> {
    const wait = effort.notBefore - this.parts.clock.now();
    const stuck = judged.find(({ verdict }) => verdict.kind === 'stuck');
    // kubelet lowers all or nothing: while one cannot be lowered, the others' memory would be reclaimed in vain.
    if (stuck !== undefined) {
      this.#defer(effort, Reason.MEMORY_NOT_RECLAIMABLE, cannot(stuck));
      return wait > 0 ? wait : this.#tryAgain(effort);
    }
    if (judged.every(({ verdict }) => verdict.kind === 'fits')) {
      this.#inProgress(effort, 'memory usage is below the new limit: waiting for kubelet to apply it');
      return LOOK_MS;
    }
    if (wait > 0) return wait;
    for (const each of judged) {
      const end = await this.#reclaim(effort, each);
      if (end === 'interrupted') return 0;
      if (end === 'done') continue;
      const reason = end === 'none' ? Reason.MEMORY_NOT_RECLAIMABLE : Reason.RECLAIM_TIMEOUT;
      this.#defer(effort, reason, doesNot(each, end));
      return this.#tryAgain(effort);
    }
    this.#tryAgain(effort);
    this.#inProgress(effort, 'memory was reclaimed below the new limit: waiting for kubelet to apply it');
    return LOOK_MS;
  }

  /** In steps, with rests in between, as long as nothing else happens to the pod. `none`: this kernel cannot. */
  async #reclaim(effort: Effort, { cgroup, to, text, verdict }: Judged): Promise<ReclaimEnd> {
    if (verdict.kind !== 'reclaim') return 'done';
    const { tree, counters, log } = this.parts;
    this.#inProgress(effort, `${text}: reclaiming memory to bring usage below ${to} bytes`);
    const ahead = new ReclaimAhead(tree, cgroup, verdict.goal);
    const { signal } = this.#ended;
    const before = effort.reclaimed;
    for (let idle = 0; ; ) {
      if (this.#isAwake || this.parts.isBusy(this.uid)) return 'interrupted';
      const step = await this.turns.take(async () => {
        const taken = await ahead.step(signal);
        return { taken, restMs: taken === undefined ? 0 : restMs(taken.freed, taken.ms) };
      }, signal);
      if (step === undefined) break;
      if (step.got === 'unsupported') return 'none';
      effort.reclaimed += step.freed;
      counters.foresightReclaimed(step.freed);
      idle = step.freed > 0 ? 0 : idle + 1;
      if (idle < MOST_IDLE_STEPS) {
        if (idle > 0) await this.#sleep(idleMs(idle));
        continue;
      }
      if (step.after < to) break;
      return 'stalled';
    }
    log.info(
      { uid: this.uid, cgroup, target: to, reclaimed: effort.reclaimed - before },
      'memory reclaimed for kubelet',
    );
    return 'done';
  }

  #effortFor(admitted: string): Effort {
    if (this.#effort?.admitted === admitted) return this.#effort;
    this.report = undefined;
    return (this.#effort = {
      ...{ admitted, since: this.parts.clock.now(), reclaimed: 0, times: 0, notBefore: 0 },
      ...{ isStuck: false, isOver: false, told: new Set() },
    });
  }

  #tryAgain(effort: Effort): number {
    effort.times += 1;
    const wait = backoffMs(effort.times);
    effort.notBefore = this.parts.clock.now() + wait;
    return wait;
  }

  #inProgress(effort: Effort, message: string): void {
    // Nothing was ever in the way: it is kubelet's resize like any other.
    if (!effort.isStuck) return;
    this.#tell(effort, 'InProgress', undefined, message);
  }

  #defer(effort: Effort, reason: Reason, message: string): void {
    this.#tell(effort, 'Deferred', reason, message);
    if (effort.told.has(reason) || this.report === undefined) return;
    effort.told.add(reason);
    this.parts.counters.foresight('deferred');
    this.parts.log.warn({ uid: this.uid, reason, error: message }, 'memory decrease admitted by kubelet deferred');
    for (const listener of this.listeners) listener(this.uid, this.report);
  }

  #giveUp(effort: Effort): number | undefined {
    effort.isOver = true;
    if (!effort.isStuck) return Infinity;
    const why =
      this.report?.state === 'Deferred' ? this.report.message : 'memory usage kept rising again after reclaim';
    const reason = this.report?.reason ?? Reason.RECLAIM_TIMEOUT;
    this.#tell(effort, 'Deferred', reason, `given up after ${HELP_MS / 60_000} minutes: ${why}`);
    this.parts.counters.foresight('given_up');
    this.parts.log.warn(
      { uid: this.uid, reclaimed: effort.reclaimed },
      'reclaim for memory decrease admitted by kubelet given up',
    );
    return Infinity;
  }

  #unstuck({ since, reclaimed }: Effort): void {
    const ms = this.parts.clock.now() - since;
    this.parts.counters.foresight('unstuck');
    this.parts.log.info({ uid: this.uid, ms, reclaimed }, 'memory decrease applied by kubelet after reclaim');
  }

  #tell(effort: Effort, state: DecreaseReport['state'], reason: Reason | undefined, message: string): void {
    this.report = { state, reason, message, since: effort.since, reclaimed: bytes(effort.reclaimed) };
  }

  /** Until that much time has passed, or something may have changed. */
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

type ReclaimEnd = 'done' | 'interrupted' | 'stalled' | 'none';

const cannot = ({ text, from, to, use }: Judged): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}, but ${use.unreclaimable} bytes are in use that cannot ` +
  `be reclaimed (anon ${use.anon}, shmem ${use.shmem}, unevictable ${use.unevictable}; memory.current ${use.current}): expected less than ` +
  `${to - marginOf(to)}`;

const doesNot = ({ text, from, to, use }: Judged, end: 'stalled' | 'none'): string =>
  `${text}: kubelet is to lower memory.max from ${from} to ${to}, but ${use.current} bytes are in use: ` +
  (end === 'none'
    ? 'this kernel has no memory.reclaim (expected Linux 5.19 or later)'
    : `reclaim frees no more of the ${use.current - use.unreclaimable} reclaimable bytes`);
