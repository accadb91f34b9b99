import { backOff, type Clock, jittered, Reason } from '../../core/index.ts';
import { memoryRequestIn, type ResizeOutcome } from '../plan/resize-request.ts';
import type { PodIdentity } from '../pods/pod-identity.ts';
import type { ActiveResize, RequestsAround, ResizeTable } from './resize-table.ts';

/**
 * Resizes that are due within this time are retried together with a due one that follows in order. With a longer time,
 * nearly all of them would be retried at each timer.
 */
const EARLY_MS = 20_000;
/** Maximum number of resizes that are retried early because they rank above a due one: the first in order. */
export const MOST_ABOVE = 10;
/** Maximum time that the admission of one resize, which may wait for its pod's lock, delays the others, in ms. */
const ADMISSION_MS = 5000;

export interface RetriesOptions {
  readonly table: Pick<ResizeTable, 'allActive'>;
  readonly clock: Clock;
  readonly rankOf: RankOf;
  /** Runs one attempt. Calls `onAdmitted` when it is clear that the resize fits. Never rejects. */
  readonly attempt: (active: ActiveResize, onAdmitted?: () => void) => Promise<void>;
  readonly isStopping: () => boolean;
}

/**
 * The order of retries. Resizes that wait for resources on the node are admitted one after the other, so that the first
 * in order gets the freed resources. Each is tried once; a resize that still does not fit does not delay the next ones.
 * All others are independent, and run concurrently.
 */
export class Retries {
  readonly #waiting = new Set<ActiveResize>();
  #running: Promise<void> | undefined;
  /** Whether resources were freed during an attempt, which may not have seen them. */
  #wasFreed = false;

  constructor(private readonly options: RetriesOptions) {}

  /**
   * Retries due resizes, in order. If one of them waits for resources on the node, also retries the first resizes that
   * rank above it, and older ones that are due soon: it must not get resources that one of them needs. Resources may
   * have become free without a notice, for example when a pod ends.
   */
  due(active: ActiveResize): void {
    const { clock, rankOf, table } = this.options;
    const now = clock.now();
    const isDue = (one: ActiveResize): boolean => one === active || (one.dueAt ?? Infinity) <= now;
    const isSoon = (one: ActiveResize): boolean => (one.dueAt ?? now) <= now + EARLY_MS;
    const deferred = inRetryOrder(
      table.allActive.filter(({ resize }) => resize.state === 'Deferred'),
      rankOf,
    );
    for (const other of deferred.filter((one) => isDue(one) && !waitsForRoom(one))) {
      other.stopTimer();
      void this.options.attempt(other);
    }
    const waiting = deferred.filter(waitsForRoom);
    const last = waiting.findLast(isDue);
    if (last === undefined) return;
    const rank = rankOf(last.resize.pod);
    const isTried = (one: ActiveResize, at: number): boolean =>
      isDue(one) || isSoon(one) || (at < MOST_ABOVE && outranks(rankOf(one.resize.pod), rank));
    this.#add(waiting.slice(0, waiting.indexOf(last) + 1).filter(isTried));
  }

  /** Retries the resizes that are known to wait for resources on the node. */
  roomFreed(): void {
    this.#wasFreed = true;
    this.#add(
      this.options.table.allActive.filter(
        ({ resize: { state, reason } }) => state === 'Deferred' && reason === Reason.NODE_FULL,
      ),
    );
  }

  /** Resolves when no resize waits to be admitted. */
  async idle(): Promise<void> {
    await this.#running;
  }

  #add(resizes: readonly ActiveResize[]): void {
    for (const active of resizes) {
      active.stopTimer();
      this.#waiting.add(active);
    }
    this.#start();
  }

  #start(): void {
    if (this.#waiting.size === 0 || this.options.isStopping()) return;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // Resizes added since the last attempt no longer have a timer: only another run retries them.
      this.#start();
    });
  }

  async #run(): Promise<void> {
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const active = next;
      this.#waiting.delete(active);
      await this.#untilAdmitted(active);
      if (this.#wasFreed && waitsForRoom(active)) this.#add([active]);
    }
    this.#waiting.clear();
  }

  /** Runs an attempt. Resolves when the resize is admitted or does not fit, or after {@link ADMISSION_MS}. */
  async #untilAdmitted(active: ActiveResize): Promise<void> {
    this.#wasFreed = false;
    let stopTimer: () => void = () => undefined;
    await new Promise<void>((resolve) => {
      stopTimer = this.options.clock.after(ADMISSION_MS, resolve);
      void this.options.attempt(active, resolve).then(resolve);
    });
    stopTimer();
  }

  /** Returns the first in order. Some may have been cancelled or superseded while they waited. */
  #next(): ActiveResize | undefined {
    if (this.options.isStopping()) return undefined;
    return inRetryOrder([...this.#waiting].filter(waitsForRoom), this.options.rankOf)[0];
  }
}

/** The rank of a pod among those that wait for room on the node. */
export interface PodRank {
  /** The value of its priority class. 0: none, or not known. */
  readonly priority: number;
  readonly isGuaranteed: boolean;
}

export type RankOf = (pod: PodIdentity) => PodRank;

/** Ranks all pods alike: resizes are retried in the order of their arrival. */
export const equalRanks: RankOf = () => ({ priority: 0, isGuaranteed: false });

/**
 * Returns resizes in the order of their retries: KEP-1287 (kubelet pkg/kubelet/allocation/allocation_manager.go,
 * sortPendingResizes): the higher priority, then Guaranteed pods, then the request that arrived first. kubelet first
 * retries resizes that raise no request. These do not wait here, because they always fit. Ranks each resize once.
 */
export const inRetryOrder = (resizes: readonly ActiveResize[], rankOf: RankOf): ActiveResize[] =>
  resizes
    .map((active) => ({ active, rank: rankOf(active.resize.pod) }))
    .sort(compareRanked)
    .map(({ active }) => active);

interface Ranked {
  readonly active: ActiveResize;
  readonly rank: PodRank;
}

const compareRanked = ({ active: one, rank: first }: Ranked, { active: other, rank: second }: Ranked): number =>
  second.priority - first.priority ||
  Number(second.isGuaranteed) - Number(first.isGuaranteed) ||
  one.order - other.order;

/** Whether a pod ranks above another one, regardless of their ages. */
const outranks = (one: PodRank, other: PodRank): boolean =>
  one.priority > other.priority || (one.priority === other.priority && one.isGuaranteed && !other.isGuaranteed);

/**
 * Whether a deferred resize waits for other pods to free resources. True for a resize deferred before a restart of the
 * shim, because its reason is not stored.
 */
const waitsForRoom = ({ resize: { state, reason } }: ActiveResize): boolean =>
  state === 'Deferred' && (reason === Reason.NODE_FULL || reason === 'RESTARTED');

/** Whether a deferred resize waits for the start of a container. */
export const waitsForContainer = ({ resize: { state, reason = '' } }: ActiveResize): boolean =>
  state === 'Deferred' && isOfContainer(reason);

/** Whether a resize that was deferred for this reason waits for the start of a container. */
export const isOfContainer = (reason: string): boolean => CONTAINER_REASONS.has(reason);

const CONTAINER_REASONS: ReadonlySet<string> = new Set([
  Reason.SANDBOX_ENDED,
  Reason.NO_RUNNING_CONTAINER,
  Reason.UNKNOWN_CONTAINER,
  Reason.CGROUP_UNAVAILABLE,
]);

/** Whether a resize has lowered a request: other pods may fit then. The weight of a pod is its CPU request. */
export function freesRoom({ before, after }: ResizeOutcome, requests: RequestsAround): boolean {
  const now = new Map(after.containers.map(({ id, shares }) => [id, shares]));
  return (
    isLower(before.weight, after.weight) ||
    before.containers.some(({ id, shares }) => isLower(shares, now.get(id))) ||
    lowersRequest(requests)
  );
}

const isLower = (then: number | undefined, left: number | undefined): boolean =>
  then !== undefined && left !== undefined && left < then;

/** Whether a memory request was lowered. A request that was not known before may have been higher. */
function lowersRequest({ before, after }: RequestsAround): boolean {
  const pairs: [number | undefined, number | undefined][] = [
    [before.pod, after.pod],
    ...Object.entries(after.containers).map(([name, request]): [number | undefined, number] => [
      memoryRequestIn(before, name),
      request,
    ]),
  ];
  return pairs.some(([then, left]) => left !== undefined && (then === undefined || left < then));
}

/** Memory usage changes within seconds; a pod that stays full needs at most one check per minute. */
const FIRST_MS = 1000;
const MAX_MS = 60_000;
/** A check of a volume costs one statfs, and a user who removes files waits for the resize. */
const MAX_FOR_VOLUME_MS = 5000;

/**
 * KEP-1287, KEP-6030: what does not fit yet is retried. Returns the delay before the next attempt, in milliseconds. It
 * doubles with each attempt up to a minute, or 5 s if a volume is in use. The second half is random, so that pods which
 * were deferred together are not retried together.
 * @param random 0 to 1, like the result of Math.random
 * @param reason why the resize was deferred
 */
export function retryDelay(tries: number, random: number, reason?: string): number {
  const max = reason === Reason.VOLUME_IN_USE ? MAX_FOR_VOLUME_MS : MAX_MS;
  return jittered(backOff(tries, FIRST_MS, max), random);
}
