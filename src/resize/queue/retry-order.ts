import { Reason } from '../../core/errors/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';
import { type ResizeOutcome, memoryRequestIn } from '../model/index.ts';
import type { ActiveResize } from './resize-table.ts';
import type { RequestsAround } from './requests/index.ts';

/** What ranks a pod among those that wait for room on the node. */
export interface PodRank {
  /** The value of its priority class. 0: none, or not known. */
  readonly priority: number;
  readonly isGuaranteed: boolean;
}

export type RankOf = (pod: PodIdentity) => PodRank;

/** Ranks all pods alike: resizes are retried in the order of their arrival. */
export const equalRanks: RankOf = () => ({ priority: 0, isGuaranteed: false });

/**
 * Returns resizes in the order of their retries: KEP-1287 (kubelet pkg/kubelet/allocation/allocation_manager.go, sortPendingResizes): the
 * higher priority, then Guaranteed pods, then the request that arrived first. What kubelet takes before them, a resize that raises no
 * request, does not wait here: it always fits. Ranks each resize once.
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
export const outranks = (one: PodRank, other: PodRank): boolean =>
  one.priority > other.priority || (one.priority === other.priority && one.isGuaranteed && !other.isGuaranteed);

/**
 * Whether a deferred resize waits for what other pods may free. One that was deferred before a restart of the shim may: its reason is not
 * stored.
 */
export const waitsForRoom = ({ resize: { state, reason } }: ActiveResize): boolean =>
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

/** A memory request that was not known before may have been higher. */
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
