import type { CgroupPath, ReadWatch } from '../../cgroups/index.ts';
import { messageOf } from '../../core/index.ts';
import type { DecreaseReclaimerOptions } from './decrease.ts';
import { HOLD_MS } from './decrease-policy.ts';

/** Where kubelet has a figure of memory usage from: the runtime measures at each call, cAdvisor every 10 to 30 s. */
export type UsageSource = 'runtime' | 'cadvisor';

/** cAdvisor stores its figures after it has read all files of a cgroup and of its processes. */
const STORED_MS = 250;

/** cAdvisor measures an idle cgroup at least this often. The shim waits that long where it cannot watch for it. */
const UNWATCHED_MS = 30_000;

/** How many calls for one pod wait at a time. kubelet's worker of the pod makes one; further ones are not delayed. */
export const MAX_CALLS = 16;

/** A call that waits. */
interface WaitingCall {
  isOver: boolean;
  readonly end: () => void;
}

interface ComparisonOptions extends Pick<DecreaseReclaimerOptions, 'clock' | 'log'> {
  readonly tree: Pick<DecreaseReclaimerOptions['tree'], 'watchMeasuring'>;
}

/**
 * KEP-1287, lowering memory: says when kubelet may compare a pod's usage with its pending limits: once usage is held
 * below them and kubelet's figures show it, or when the shim cannot help. kubelet 1.34 and later take the usage of
 * containers from the runtime (ListContainerStats) and the pod's from cAdvisor, unless its feature gate
 * PodAndContainerStatsFromCRI is on (pkg/kubelet/stats, cri_stats_provider.go, PodCPUAndMemoryStats).
 */
export class Comparison {
  /** Calls that wait until the state changes. */
  readonly #waiting = new Set<() => void>();
  /** All calls that wait, also those for a check. */
  readonly #calls = new Set<WaitingCall>();
  /** Includes calls that are over, while the check for which they have waited goes on. */
  #count = 0;
  /** `held`: usage is below all limits, and cAdvisor has not measured the pod since. */
  #state: 'blocked' | 'held' | 'open' = 'blocked';
  /** Who waits for the present check to decide, and for the next one. */
  readonly #deciding: ((isDecided: boolean) => void)[] = [];
  readonly #asked: ((isDecided: boolean) => void)[] = [];
  #isOpenForGood = false;
  /** Whether the runtime reported the pod's usage to kubelet in this attempt, which then skips cAdvisor. */
  #isFromRuntime = false;
  #stopWatch: () => void = () => undefined;

  constructor(private readonly options: ComparisonOptions) {}

  /** Whether a call waits: kubelet is about to compare. */
  get isAsked(): boolean {
    return this.#calls.size > 0;
  }

  /** A check begins, of kubelet's admissions until now. {@link open} or {@link holdBegins} has its result. */
  checkBegins(): void {
    this.#deciding.push(...this.#asked.splice(0));
  }

  /** A hold begins: usage is not below the limits. */
  holdBegins(): void {
    // kubelet has compared with the figure of an earlier hold, if at all.
    this.#isFromRuntime = false;
    this.#decide();
    this.block();
    // These came after the check had begun: the hold has to look at what kubelet has admitted since.
    for (const answer of this.#asked.splice(0)) answer(false);
  }

  /** Usage is not below the limits yet. */
  block(): void {
    this.#set('blocked');
  }

  /** A comparison succeeds, or waiting does not help. */
  open(): void {
    this.#set('open');
    this.#decide();
  }

  /** kubelet may compare from now on, even if usage is above the limits. */
  openForGood(): void {
    this.#isOpenForGood = true;
    for (const call of this.#calls) call.end();
  }

  /** The runtime has reported the pod's usage to kubelet. */
  measuredByRuntime(): void {
    this.#isFromRuntime = true;
    this.#wake();
  }

  /**
   * Usage is held below all limits.
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
   * @param recheck looks at what kubelet has admitted until now; resolves with false if it has to be called again
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

  /** Ends a call when kubelet may compare. Never rejects. */
  async #wait(call: WaitingCall, source: UsageSource, recheck: () => Promise<boolean>): Promise<void> {
    this.#count += 1;
    while (!call.isOver && !(await recheck()));
    while (!call.isOver && !this.#isReady(source)) await new Promise<void>((resolve) => this.#waiting.add(resolve));
    this.#count -= 1;
    if (!call.isOver) call.end();
  }

  /** Resolves: true once a check that begins from now on has its result, false if {@link ready} must recheck. */
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

  /** Opens once cAdvisor has measured the pod. Without a watch, once it must have. */
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
