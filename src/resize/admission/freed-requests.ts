import type { PodEntry } from '../../kubelet/index.ts';
import { RESOURCES, type TotalRequests, admittedRequests } from './pod-requests.ts';

type Entries = ReadonlyMap<string, PodEntry>;

/** Whether kubelet has dropped a pod or admitted lower requests of one: others may fit now. */
export const areRequestsFreed = (before: Entries, after: Entries): boolean =>
  [...before].some(([uid, entry]) => {
    const now = after.get(uid);
    if (now === undefined) return true;
    // An equal entry stays the same object, and kubelet changes a few at a time.
    if (now === entry) return false;
    const [then, left] = [requested(entry), requested(now)];
    return RESOURCES.some((resource) => left[resource] < then[resource]);
  });

const requested = (entry: PodEntry): TotalRequests => admittedRequests(entry, undefined, undefined);
