import type { PodEntry } from '../../kubelet/index.ts';
import { RESOURCES, admittedRequests } from './pod-requests.ts';

type Entries = ReadonlyMap<string, PodEntry>;

/** Whether kubelet has dropped a pod or admitted lower requests of one: others may fit now. */
export const areRequestsFreed = (before: Entries, after: Entries): boolean =>
  [...before].some(([uid, entry]) => {
    const now = after.get(uid);
    if (now === undefined) return true;
    const [then, left] = [entry, now].map((one) => admittedRequests(one, undefined, undefined));
    return RESOURCES.some((resource) => (left?.[resource] ?? 0) < (then?.[resource] ?? 0));
  });
