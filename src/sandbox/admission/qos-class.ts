import { Code, Reason, ShimError } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { DesiredPod } from '../plan/resize-request.ts';
import type { Amounts, QosClass } from '../pods/declared-pod.ts';
import { podName } from '../pods/names.ts';
import type { PodState } from '../pods/pod-state.ts';
import { hasLevel, levelLimitsAfter, levelRequestsAfter } from './pod-level.ts';
import {
  amountsAfter,
  amountsNow,
  type ContainerAmounts,
  comparable,
  pick,
  RESOURCES,
  type Resource,
  unchanged,
} from './pod-requests.ts';

/**
 * KEP-1287: a resize does not change the QoS class of a pod. Throws QOS_CLASS_CHANGES. The class comes from the pod's
 * status or its cgroup. Skips the check if the present values do not result in that class, because they are not
 * completely known then. A pod may be Burstable because of a container with unknown values.
 */
export function assertQosClassStays(pod: PodDescription, state: PodState, desired: DesiredPod): void {
  const qosClass = state.declared?.qosClass;
  if (qosClass === undefined || classOf(qosClass, state, amountsNow(state, desired), unchanged(desired)) !== qosClass)
    return;
  const after = classOf(qosClass, state, amountsAfter(state, desired), desired);
  if (after === qosClass || (qosClass === 'Burstable' && hasUncounted(state))) return;
  const message = `pod ${podName(pod)}: the resize would change the QoS class from ${qosClass} to ${after}: ${RULES[qosClass]}`;
  const context = { pod: pod.metadata.uid, asked: after, found: qosClass };
  throw new ShimError(Code.FAILED_PRECONDITION, Reason.QOS_CLASS_CHANGES, message, context);
}

/** Whether a container has ended that may be an init container: these count for the class, not for the pod limit. */
const hasUncounted = ({ declared }: PodState): boolean =>
  declared?.containers.some(({ isUncounted }) => isUncounted === true) ?? false;

const RULES: Readonly<Record<QosClass, string>> = {
  Guaranteed: 'each container keeps limits of CPU and memory that are equal to its requests',
  Burstable: 'its containers keep a request or a limit, and not all limits may be equal to their requests',
  BestEffort: 'its containers get no requests and no limits',
};

function classOf(
  assumed: QosClass,
  state: PodState,
  containers: readonly ContainerAmounts[],
  desired: DesiredPod,
): QosClass {
  if (hasLevel(state))
    return computeQosClass([
      { limits: levelLimitsAfter(state, desired), requests: levelRequestsAfter(state, desired) },
    ]);
  const counted = containers.filter(({ kind }) => kind !== 'ephemeral');
  return computeQosClass(counted.map((container) => withAssumedRequests(container, assumed)));
}

/** Fills in unknown requests: equal to the limit in a Guaranteed pod, absent in any other pod. */
function withAssumedRequests({ limits, requests, knows }: ContainerAmounts, assumed: QosClass): QosAmounts {
  if (assumed !== 'Guaranteed') return { limits, requests };
  const { memory = knows.memory ? undefined : limits.memory, milliCpu = knows.milliCpu ? undefined : limits.milliCpu } =
    requests;
  return { limits, requests: pick(memory, milliCpu) };
}

/** The limits and requests of a container, or of a pod that declares its own. */
export interface QosAmounts {
  readonly limits: Amounts;
  readonly requests: Amounts;
}

/**
 * Returns the QoS class (kubelet pkg/apis/core/v1/helper/qos, ComputePodQOS): BestEffort without any limit or request,
 * Guaranteed if all have CPU and memory limits and the sums of requests and limits are equal, otherwise Burstable.
 */
export function computeQosClass(all: readonly QosAmounts[]): QosClass {
  const sum = (field: keyof QosAmounts, resource: Resource): number =>
    all.reduce((total, amounts) => total + comparable(resource, amounts[field][resource] ?? 0), 0);
  const isNothing = RESOURCES.every((resource) => sum('limits', resource) === 0 && sum('requests', resource) === 0);
  if (isNothing) return 'BestEffort';
  const isGuaranteed = RESOURCES.every(
    (resource) =>
      all.every(({ limits }) => limits[resource] !== undefined) &&
      sum('limits', resource) === sum('requests', resource),
  );
  return isGuaranteed ? 'Guaranteed' : 'Burstable';
}
