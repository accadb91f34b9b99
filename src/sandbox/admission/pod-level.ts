import { type Bytes, bytes, type ShimError } from '../../core/index.ts';
import { type MilliCpu, milliCpuToShares } from '../../kubelet/index.ts';
import { formatMemory, formatMilli, invalid } from '../plan/amounts.ts';
import { type DesiredPod, memoryRequestIn } from '../plan/resize-request.ts';
import type { Amounts } from '../pods/declared-pod.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT } from '../pods/read-pod.ts';
import { amountsOf } from '../pods/runtime-containers.ts';
import {
  amountsAfter,
  amountsNow,
  comparable,
  overheadRequests,
  pick,
  podRequests,
  RESOURCES,
  type Resource,
  requestOfShares,
  type TotalRequests,
  unchanged,
} from './pod-requests.ts';

/**
 * The pod-level resources of KEP-2837. The values of a ResizePod and of the pod's cgroup include the overhead; those of
 * the spec, and all that is returned here, do not.
 */

/** Whether the spec or kubelet's state has the resources of the pod. */
export const isOfKubernetes = ({ declared }: PodState): boolean =>
  declared?.source === 'spec' || declared?.source === 'kubelet-state';

/** Whether the pod declares pod-level resources. */
export const hasLevel = ({ declared }: PodState): boolean =>
  RESOURCES.some(
    (resource) => declared?.limits?.[resource] !== undefined || declared?.requests?.[resource] !== undefined,
  );

/** Returns the pod-level limits after a resize: those that it sets, otherwise the declared ones. */
export function levelLimitsAfter({ declared, overhead }: PodState, { pod }: Pick<DesiredPod, 'pod'>): Amounts {
  const { limits = {} } = declared ?? {};
  const { memory, milliCpu } = withoutOverhead(
    amountsOf({ memory: pod.memory ?? 'max', cpu: pod.cpu ?? NO_CPU_LIMIT }),
    overhead,
  );
  return pick(pod.memory === undefined ? limits.memory : memory, pod.cpu === undefined ? limits.milliCpu : milliCpu);
}

/** Returns the pod-level requests after a resize: those that it or an earlier resize sets, otherwise the declared. */
export function levelRequestsAfter({ declared, overhead }: PodState, desired: DesiredPod): Amounts {
  const { pod, memoryRequests, earlierMemoryRequests } = desired;
  const { requests } = declared ?? {};
  const memory = memoryRequests?.pod ?? earlierMemoryRequests?.pod;
  const milliCpu = pod.shares === undefined ? undefined : requestOfShares(pod.shares, requests?.milliCpu);
  return { ...requests, ...withoutOverhead(pick(memory, milliCpu), overhead) };
}

function withoutOverhead({ memory, milliCpu }: Amounts, overhead: PodState['overhead']): Amounts {
  const more = overheadRequests(overhead);
  return {
    ...(memory !== undefined && { memory: bytes(Math.max(memory - more.memory, 0)) }),
    ...(milliCpu !== undefined && { milliCpu: Math.max(milliCpu - more.milliCpu, 0) }),
  };
}

/**
 * KEP-2837: the limit of an app container is at most the pod-level limit, and the requests of the containers together
 * are at most the pod-level request (kubelet pkg/apis/core/validation/validation.go, validatePodResourceConsistency).
 * Throws INVALID_VALUE, with the field and both figures. Compares only the values that the resize changes: another
 * program may have set the others. A pod that is not from Kubernetes may have any limit of its own.
 */
export function assertWithinLevel(state: PodState, desired: DesiredPod): void {
  if (!isOfKubernetes(state)) return;
  const [limits, requests] = [presentLimits(state, desired), levelRequestsAfter(state, desired)];
  for (const resource of RESOURCES) {
    const [limit, request] = [limits[resource], requests[resource]];
    if (limit !== undefined) assertLimits(state, desired, resource, limit);
    if (request !== undefined) assertRequests(state, desired, resource, request);
  }
}

/** Returns the pod-level limits after a resize. The kernel's take precedence over the declared ones. */
function presentLimits(state: PodState, desired: DesiredPod): Amounts {
  const after = levelLimitsAfter(state, desired);
  const live = withoutOverhead(amountsOf(state), state.overhead);
  const of = <Name extends Resource>(name: Name, isAsked: boolean): Amounts[Name] =>
    isAsked || after[name] === undefined ? after[name] : (live[name] ?? after[name]);
  return pick(of('memory', desired.pod.memory !== undefined), of('milliCpu', desired.pod.cpu !== undefined));
}

function assertLimits(state: PodState, desired: DesiredPod, resource: Resource, most: number): void {
  for (const { name, kind, limits } of amountsAfter(state, desired)) {
    const limit = limits[resource];
    if ((kind !== 'app' && kind !== 'unknown') || limit === undefined || mayBeInit(state, name)) continue;
    if (comparable(resource, limit) <= comparable(resource, most)) continue;
    const asked = { container: name, kind: 'limits', resource } as const;
    if (setsLimit(desired.containers.get(name), resource))
      throw refused(asked, limit, `the limit is above that of the pod, ${formatOf(resource, most)}`);
    if (setsLimit(desired.pod, resource)) {
      const why = `the limit is below that of container ${name}, ${formatOf(resource, limit)}`;
      throw refused({ ...asked, container: undefined }, most, why);
    }
  }
}

function assertRequests(state: PodState, desired: DesiredPod, resource: Resource, most: number): void {
  const containers = amountsAfter(state, desired).map((one) =>
    hasSharesOfPod(state.declared, one.name) && desired.containers.get(one.name)?.shares === undefined
      ? { ...one, requests: pick(one.requests.memory, undefined) }
      : one,
  );
  const sum = podRequests({ containers: containers.filter(({ name }) => !mayBeInit(state, name)) })[resource];
  if (sum <= most) return;
  const raised = containers.find(({ name }) => setsRequest(desired, name, resource));
  if (raised !== undefined) {
    const why = `with it, the containers request ${formatOf(resource, sum)}, more than the pod, ${formatOf(resource, most)}`;
    const asked = { container: raised.name, kind: 'requests', resource } as const;
    throw refused(asked, raised.requests[resource] ?? 0, why);
  }
  if (resource === 'memory' ? desired.memoryRequests?.pod !== undefined : desired.pod.shares !== undefined) {
    const why = `the request is below that of the containers, ${formatOf(resource, sum)}`;
    throw refused({ container: undefined, kind: 'requests', resource }, most, why);
  }
}

/** Whether a container may be an ordinary init container: then it is not known how it counts. */
const mayBeInit = ({ declared }: PodState, name: string): boolean =>
  declared?.containers.find((one) => one.name === name)?.mayBeInit === true;

const setsLimit = (limits: Limits | undefined, resource: Resource): boolean =>
  limits?.[resource === 'memory' ? 'memory' : 'cpu'] !== undefined;

const setsRequest = ({ containers, memoryRequests }: DesiredPod, name: string, resource: Resource): boolean =>
  resource === 'memory'
    ? memoryRequestIn(memoryRequests, name) !== undefined
    : containers.get(name)?.shares !== undefined;

interface Field {
  /** Undefined: of the pod. */
  readonly container: string | undefined;
  readonly kind: 'limits' | 'requests';
  readonly resource: Resource;
}

function refused({ container, kind, resource }: Field, amount: number, why: string): ShimError {
  const owner = container === undefined ? 'resources' : `containers[${JSON.stringify(container)}]`;
  const field = `${owner}.${kind}.${resource === 'memory' ? 'memory' : 'cpu'}`;
  return invalid(field, formatOf(resource, amount), why);
}

/** Formats an amount of a resource as Kubernetes writes it. */
export const formatOf = (resource: Resource, amount: Bytes | MilliCpu): string =>
  resource === 'memory' ? formatMemory(bytes(amount)) : formatMilli(amount);

/**
 * Whether a container has the shares of the pod-level CPU limit: kubelet sets that limit and its shares for a container
 * without CPU resources (kubelet pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
 * generateLinuxContainerResources). The shares stay when the limit changes. They are not a request.
 */
export function hasSharesOfPod(declared: PodState['declared'], name: string): boolean {
  const { limits, requests } = declared?.containers.find((one) => one.name === name) ?? {};
  const has = declared?.limits?.milliCpu !== undefined;
  return has && limits !== undefined && limits.milliCpu === undefined && requests?.milliCpu === undefined;
}

/** Returns the requests of a pod after a resize. */
export const requestsAfter = (state: PodState, desired: DesiredPod): TotalRequests =>
  podRequests({
    containers: amountsAfter(state, desired),
    level: levelRequestsAfter(state, desired),
    overhead: state.overhead,
  });

/** Returns the present requests of a pod. `desired` contains the requests of earlier resizes. */
export const requestsNow = (state: PodState, desired: DesiredPod): TotalRequests =>
  requestsAfter(state, unchanged(desired));

/**
 * Adds the requests that the API server derives: a container with a limit and without a request has a request that
 * equals the limit (kubelet pkg/apis/core/v1/defaults.go, SetDefaults_Pod). Only for a container whose declared
 * requests are known.
 */
export function withDefaultRequests(state: PodState, desired: DesiredPod): DesiredPod {
  if (!isOfKubernetes(state)) return desired;
  const now = new Map(amountsNow(state, desired).map(({ name, requests }) => [name, requests]));
  const memory: Record<string, Bytes> = { ...desired.memoryRequests?.containers };
  const containers = new Map(desired.containers);
  for (const { name, kind, requests, limits: declared = {} } of state.declared?.containers ?? []) {
    const limits = containers.get(name);
    if (limits === undefined || requests === undefined || kind === 'ephemeral') continue;
    const { memory: size, milliCpu } = amountsOf({ memory: limits.memory ?? 'max', cpu: limits.cpu ?? NO_CPU_LIMIT });
    const present = now.get(name);
    const hasMemory = declared.memory !== undefined || present?.memory !== undefined || Object.hasOwn(memory, name);
    if (size !== undefined && !hasMemory) memory[name] = size;
    const hasCpu = present?.milliCpu !== undefined && !hasSharesOfPod(state.declared, name);
    if (milliCpu !== undefined && limits.shares === undefined && declared.milliCpu === undefined && !hasCpu)
      containers.set(name, { ...limits, shares: milliCpuToShares(milliCpu) });
  }
  return { ...desired, containers, memoryRequests: { ...desired.memoryRequests, containers: memory } };
}
