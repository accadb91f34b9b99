import type { Amounts, PodState } from '../../sandbox/index.ts';
import {
  type TotalRequests,
  amountsAfter,
  overheadRequests,
  podRequests,
  requestOfShares,
  unchanged,
} from '../admission/index.ts';
import { bytes } from '../../core/quantities/index.ts';
import type { DesiredPod } from '../model/index.ts';

/** Returns the requests of a pod after a resize. */
export function requestsAfter(state: PodState, desired: DesiredPod): TotalRequests {
  const level = { ...state.declared?.requests, ...requestedLevel(state, desired) };
  return podRequests({ containers: amountsAfter(state, desired), level, overhead: state.overhead });
}

/** Returns the pod-level requests that resizes set, without the overhead that they hold, as the pod's cgroup does. */
function requestedLevel({ declared, overhead }: PodState, desired: DesiredPod): Amounts {
  const { pod, memoryRequests, earlierMemoryRequests } = desired;
  const memory = memoryRequests?.pod ?? earlierMemoryRequests?.pod;
  const milliCpu = pod.shares === undefined ? undefined : requestOfShares(pod.shares, declared?.requests?.milliCpu);
  const more = overheadRequests(overhead);
  return {
    ...(memory !== undefined && { memory: bytes(Math.max(memory - more.memory, 0)) }),
    ...(milliCpu !== undefined && { milliCpu: Math.max(milliCpu - more.milliCpu, 0) }),
  };
}

/** Returns the present requests of a pod. `desired` has the requests of earlier resizes. */
export const requestsNow = (state: PodState, desired: DesiredPod): TotalRequests =>
  requestsAfter(state, unchanged(desired));
