import type { CgroupPath, ReadWatch } from '../../cgroups/index.ts';
import { messageOf } from '../../core/index.ts';
import type { DecreaseReclaimerOptions } from './decrease.ts';
import { HOLD_MS } from './decrease-policy.ts';

/** Where kubelet gets a memory usage from: the runtime measures at each call, cAdvisor every 10 to 30 s. */
export type UsageSource = 'runtime' | 'cadvisor';

/** Time that cAdvisor needs to store its figures after it has read all files of a cgroup, in milliseconds. */
const STORED_MS = 250;

/** Maximum time between two cAdvisor measurements of an idle cgroup, in milliseconds. Used if no watch is possible. */
const UNWATCHED_MS = 30_000;

/** Maximum number of waiting calls per pod. kubelet's worker of the pod makes one; further calls are not delayed. */
export const MAX_CALLS = 16;

/** A waiting call. */
interface WaitingCall {
  isOver: boolean;
  readonly end: () => void;
}

interface ComparisonOptions extends Pick<DecreaseReclaimerOptions, 'clock' | 'log'> {
  readonly tree: Pick<DecreaseReclaimerOptions['tree'], 'watchMeasuring'>;
}

/**
 * KEP-1287, lowering memory: determines when kubelet may compare a pod's usage with its pending limits: once usage is
 * held below them and kubelet's figures show it, or when the shim cannot help. kubelet 1.34 and later take the usage of
 * containers from the runtime (ListContainerStats) and the pod's from cAdvisor, unless its feature gate
 * PodAndContainerStatsFromCRI is on (pkg/kubelet/stats, cri_stats_provider.go, PodCPUAndMemoryStats).
 */
export class Comparison {
  /** Calls that wait until the state changes. */
  readonly #waiting = new Set<() => void>();
  /** All calls that wait, also those for a check. */
  readonly #calls = new Set<WaitingCall>();
  /** Number of calls. Includes calls that have ended while the check for which they waited still runs. */
  #count = 0;
  /** `held`: usage is below all limits, but cAdvisor has not measured the pod yet. */
  #state: 'blocked' | 'held' | 'open' = 'blocked';
  /** Callers that wait for the result of the present check, and of the next one. */
  readonly #deciding: ((isDecided: boolean) => void)[] = [];
  readonly #asked: ((isDecided: boolean) => void)[] = [];
  #isOpenForGood = false;
  /** Whether the runtime reported the pod's usage to kubelet in this attempt, which then skips cAdvisor. */
  #isFromRuntime = false;
  #stopWatch: () => void = () => undefined;

  constructor(private readonly options: ComparisonOptions) {}

  /** Whether a call waits, so that kubelet is about to compare. */
  get isAsked(): boolean {
    return this.#calls.size > 0;
  }

  /** Called when a check begins. Its result is reported by {@link open} or {@link holdBegins}. */
  checkBegins(): void {
    this.#deciding.push(...this.#asked.splice(0));
  }

  /** Called when a hold begins: usage is not below the limits. */
  holdBegins(): void {
    // If kubelet has compared usage, it used the figure of an earlier hold.
    this.#isFromRuntime = false;
    this.#decide();
    this.block();
    // These calls came after the check had begun: the hold has to check what kubelet has admitted since.
    for (const answer of this.#asked.splice(0)) answer(false);
  }

  /** Blocks comparisons: usage is not below the limits yet. */
  block(): void {
    this.#set('blocked');
  }

  /** Allows comparisons: they succeed, or waiting does not help. */
  open(): void {
    this.#set('open');
    this.#decide();
  }

  /** Allows comparisons permanently, even if usage is above the limits. */
  openForGood(): void {
    this.#isOpenForGood = true;
    for (const call of this.#calls) call.end();
  }

  /** Records that the runtime has reported the pod's usage to kubelet. */
  measuredByRuntime(): void {
    this.#isFromRuntime = true;
    this.#wake();
  }

  /**
   * Records that usage is held below all limits.
   * @param pod the pod's cgroup if its limit is one of them
   */
  held(pod: CgroupPath | undefined): void {
    if (pod === undefined) {
      this.open();
      return;
    }
    this.#set('held');
    let isOver = false;
    this.#stopWatch = () => (isOver = true);
    void this.#measured(pod, () => isOver);
  }

  /**
   * Resolves when kubelet may compare, and after the time of the longest hold at the latest. Never rejects.
   * @param recheck checks what kubelet has admitted until now; resolves with false if it has to be called again
   */
  ready(source: UsageSource, recheck: () => Promise<boolean>): Promise<void> {
    // kubelet's attempt begins with this call. If it fails, kubelet takes cAdvisor's figure.
    if (source === 'runtime') this.#isFromRuntime = false;
    if (this.#isOpenForGood || this.#count >= MAX_CALLS) return Promise.resolve();
    return new Promise((resolve) => {
      const stop = this.options.clock.after(HOLD_MS, () => call.end());
      const call: WaitingCall = {
        isOver: false,
        end: () => {
          stop();
          call.isOver = true;
          this.#calls.delete(call);
          this.#wake();
          resolve();
        },
      };
      this.#calls.add(call);
      void this.#wait(call, source, recheck);
    });
  }

  /** Ends the wait of a call once kubelet may compare usage with its limits. Never rejects. */
  async #wait(call: WaitingCall, source: UsageSource, recheck: () => Promise<boolean>): Promise<void> {
    this.#count += 1;
    while (!call.isOver && !(await recheck()));
    while (!call.isOver && !this.#isReady(source)) await new Promise<void>((resolve) => this.#waiting.add(resolve));
    this.#count -= 1;
    if (!call.isOver) call.end();
  }

  /** Resolves with true once a check that begins from now on has ended, with false if {@link ready} must recheck. */
  nextCheck(): Promise<boolean> {
    return new Promise((resolve) => this.#asked.push(resolve));
  }

  #isReady(source: UsageSource): boolean {
    if (this.#state === 'held') return source === 'runtime' || this.#isFromRuntime;
    return this.#state === 'open';
  }

  #set(state: 'blocked' | 'held' | 'open'): void {
    this.#stopWatch();
    this.#stopWatch = () => undefined;
    this.#state = state;
    this.#wake();
  }

  #decide(): void {
    for (const answer of this.#deciding.splice(0)) answer(true);
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /** Allows comparisons once cAdvisor has measured the pod. Without a watch, waits {@link UNWATCHED_MS}. */
  async #measured(pod: CgroupPath, isOver: () => boolean): Promise<void> {
    const { tree, clock, log } = this.options;
    try {
      const watch: ReadWatch = await tree.watchMeasuring(pod);
      if (isOver()) {
        watch.close();
        return;
      }
      this.#stopWatch = joined(this.#stopWatch, () => watch.close());
      await watch.whenRead;
      this.#stopWatch = joined(
        this.#stopWatch,
        clock.after(STORED_MS, () => this.open()),
      );
    } catch (error) {
      if (isOver()) return;
      log.debug({ cgroup: pod, error: messageOf(error) }, 'cgroup not watched for reads');
      this.#stopWatch = clock.after(UNWATCHED_MS, () => this.open());
    }
  }
}

const joined =
  (one: () => void, other: () => void): (() => void) =>
  () => {
    one();
    other();
  };
