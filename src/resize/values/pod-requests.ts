import type { PodState } from '../../sandbox/index.ts';
import { type TotalRequests, amountsAfter, milliCpuOf, pick, podRequests, unchanged } from '../admission/index.ts';
import type { DesiredPod } from '../model/index.ts';

/** Returns the requests of a pod after a resize. */
export function requestsAfter(state: PodState, desired: DesiredPod): TotalRequests {
  const { pod, memoryRequests, earlierMemoryRequests } = desired;
  const own = pick(
    memoryRequests?.pod ?? earlierMemoryRequests?.pod,
    pod.shares === undefined ? undefined : milliCpuOf(pod.shares),
  );
  const level = { ...state.declared?.requests, ...own };
  return podRequests({ containers: amountsAfter(state, desired), level, overhead: state.overhead });
}

/** Returns the present requests of a pod. `desired` has the requests of earlier resizes. */
export const requestsNow = (state: PodState, desired: DesiredPod): TotalRequests =>
  requestsAfter(state, unchanged(desired));
