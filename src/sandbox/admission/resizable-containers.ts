import { Code, Reason, ShimError } from '../../core/index.ts';
import type { ResourceManagers } from '../../kubelet/index.ts';
import type { ContainerDescription, PodDescription } from '../../runtime/index.ts';
import { sizeIn } from '../plan/memory-qos-change.ts';
import type { DesiredPod } from '../plan/resize-request.ts';
import type { DeclaredContainer } from '../pods/declared-pod.ts';
import { containerSubject, podName } from '../pods/names.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { amountsOf } from '../pods/runtime-containers.ts';
import { SWAP_MAX, settingsIn } from '../pods/stored-limits.ts';
import {
  amountsAfter,
  amountsNow,
  type ContainerAmounts,
  comparable,
  RESOURCES,
  type Resource,
} from './pod-requests.ts';

/**
 * KEP-1287, static CPU and memory policy: throws EXCLUSIVE_CPUS if the CPU changes of a container with exclusive CPUs
 * from kubelet's static CPU manager, and PINNED_MEMORY if the memory changes of a container whose memory the static
 * memory manager assigned. kubelet made these assignments for the old values. It resizes no Guaranteed pod with a
 * static policy, also if its containers share their CPUs (kubelet pkg/kubelet/allocation/handlers.go).
 */
export function assertNotAssigned(
  managers: ResourceManagers,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
): void {
  const { uid } = pod.metadata;
  for (const { name, resource } of changedResources(state, desired)) {
    const manager = resource === 'milliCpu' ? 'cpu' : 'memory';
    const cpus = resource === 'milliCpu' ? managers.exclusiveCpus(uid, name) : undefined;
    if (cpus !== undefined) {
      const message = `the static CPU manager of kubelet has assigned the CPUs ${cpus} to it: its CPU cannot be resized`;
      throw rejected(Reason.EXCLUSIVE_CPUS, pod, name, message, cpus);
    }
    const nodes = resource === 'memory' ? managers.memoryNodes(uid, name) : undefined;
    if (nodes !== undefined) {
      const message = `the static memory manager of kubelet has pinned its memory to the NUMA nodes ${nodes}: its memory cannot be resized`;
      throw rejected(Reason.PINNED_MEMORY, pod, name, message, nodes);
    }
    const { declared } = state;
    const isOwn = declared?.containers.find((one) => one.name === name)?.limits?.[resource] !== undefined;
    if (isOwn && declared.qosClass === 'Guaranteed' && managers.isStatic(manager)) {
      const label = manager === 'cpu' ? 'CPU' : 'memory';
      const reason = manager === 'cpu' ? Reason.EXCLUSIVE_CPUS : Reason.PINNED_MEMORY;
      const message = `with its static ${label} manager, kubelet does not resize the ${label} of Guaranteed pods`;
      throw rejected(reason, pod, name, message, 'static');
    }
  }
}

/**
 * Removes the CPU limits from a request that are those of containers with exclusive CPUs: kubelet sets no quota for
 * such a container (gate DisableCPUQuotaWithExclusiveCPUs), so its declared limit is not a change.
 */
export function withoutQuotasOfExclusiveCpus(
  managers: ResourceManagers,
  { metadata }: PodDescription,
  { declared, containers }: PodState,
  desired: DesiredPod,
): DesiredPod {
  const kept = [...desired.containers].map(([name, limits]): [string, Limits] => {
    const { id, limits: own } = declared?.containers.find((one) => one.name === name) ?? {};
    const live = containers.find((one) => one.id === id);
    const { cpu, ...others } = limits;
    if (cpu === undefined || live?.cpu.quota !== 'max') return [name, limits];
    const isOwn = amountsOf({ memory: 'max', cpu }).milliCpu === own?.milliCpu;
    return isOwn && managers.exclusiveCpus(metadata.uid, name) !== undefined ? [name, others] : [name, limits];
  });
  return { ...desired, containers: new Map(kept) };
}

/**
 * KEP-1287, resizePolicy; KEP-6030: none for volumes. Throws RESTART_REQUIRED if a container's resizePolicy is
 * RestartContainer for a resource that changes. kubelet owns the container: it would treat a restart by the shim as a
 * crash, and start the container with its own values. Only the pod's spec contains the policy, so a pod that kubelet
 * does not run has none.
 */
export function assertNoRestart(pod: PodDescription, state: PodState, desired: DesiredPod): void {
  const policies = new Map(state.declared?.containers.map(({ name, resizePolicy }) => [name, resizePolicy]));
  for (const { name, resource } of changedResources(state, desired)) {
    const label = resource === 'memory' ? 'memory' : 'cpu';
    if (policies.get(name)?.[label] !== 'RestartContainer') continue;
    const message =
      `its resizePolicy for ${label} is RestartContainer, and only kubelet, which owns the container, can restart it with other ` +
      'values: resize the pod through the API server (kubectl patch --subresource resize)';
    throw rejected(Reason.RESTART_REQUIRED, pod, name, message, 'RestartContainer');
  }
}

/**
 * Throws SWAP_NOT_RESIZABLE if the memory request changes of a container that may swap: with LimitedSwap kubelet
 * derives the limit on swap from the request, and does not resize such a container in place (kubelet
 * pkg/kubelet/allocation/handlers.go, disallowResizeForSwappableContainers). kubelet sets the limit as a key of
 * `unified`, which the runtime stores. A request that neither kubelet nor the spec reports is not kubelet's.
 *
 * @param containers the containers by name, with the resources that the runtime stores
 */
export function assertSwapStays(
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  containers: ReadonlyMap<string, Pick<ContainerDescription, 'resources'>>,
): void {
  const now = new Map(amountsNow(state, desired).map(({ name, requests }) => [name, requests.memory]));
  const declared = new Map(state.declared?.containers.map(({ name, requests }) => [name, requests?.memory]));
  for (const { name, requests } of amountsAfter(state, desired)) {
    const swap = sizeIn(settingsIn(containers.get(name)?.resources), SWAP_MAX);
    if (swap === undefined || swap === 'max' || swap === 0 || declared.get(name) === undefined) continue;
    if (!differs('memory', now.get(name), requests.memory)) continue;
    const message =
      `kubelet has derived its limit on swap, ${swap} bytes, from its memory request, and does not resize the request of a ` +
      'container that may swap';
    throw rejected(Reason.SWAP_NOT_RESIZABLE, pod, name, message, String(swap));
  }
}

/** The changed resources of each container, in the order of the containers. */
function changedResources(
  state: PodState,
  desired: DesiredPod,
): readonly { readonly name: string; readonly resource: Resource }[] {
  const before = new Map(amountsNow(state, desired).map((container) => [container.name, container]));
  return amountsAfter(state, desired).flatMap((after) =>
    RESOURCES.filter((resource) => isChanged(before.get(after.name), after, resource)).map((resource) => ({
      name: after.name,
      resource,
    })),
  );
}

const isChanged = (before: ContainerAmounts | undefined, after: ContainerAmounts, resource: Resource): boolean =>
  differs(resource, before?.limits[resource], after.limits[resource]) ||
  differs(resource, before?.requests[resource], after.requests[resource]);

const differs = (resource: Resource, one: number | undefined, other: number | undefined): boolean =>
  comparableOrNone(resource, one) !== comparableOrNone(resource, other);

const comparableOrNone = (resource: Resource, amount: number | undefined): number | undefined =>
  amount === undefined ? undefined : comparable(resource, amount);

function rejected(reason: Reason, pod: PodDescription, name: string, why: string, found: string): ShimError {
  const { text, ids } = containerSubject({ name }, pod);
  const message = `${text} of pod ${podName(pod)}: ${why}`;
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { ...ids, found });
}

/**
 * Throws INIT_CONTAINER_ENDED, INIT_CONTAINER_NOT_RESIZABLE or EPHEMERAL_CONTAINER_NOT_RESIZABLE for a container that
 * cannot be resized because of its kind. Kinds are not inferred: a container of unknown kind is resized.
 *
 * App containers and sidecars are resized. KEP-1287 excludes ordinary init containers. Kubernetes 1.36 resizes them
 * (feature gate InPlacePodVerticalScalingInitContainers, on by default): the API server unless their resizePolicy has
 * RestartContainer (pkg/apis/core/validation/validation.go, ValidatePodResize), and kubelet while they run
 * (pkg/kubelet/kuberuntime/kuberuntime_container.go, computeInitContainerActions).
 */
export function assertResizable(pod: PodDescription, { declared }: PodState, container: string): void {
  const found = declared?.containers.find(({ name }) => name === container);
  if (found?.kind === 'ephemeral')
    throw notResizable(pod, container, Reason.EPHEMERAL_CONTAINER_NOT_RESIZABLE, 'is an ephemeral container');
  if (found?.kind !== 'init') return;
  if (found.state === 'ended')
    throw notResizable(pod, container, Reason.INIT_CONTAINER_ENDED, 'is an init container that has ended');
  const why = whyFixed(found);
  if (why !== undefined)
    throw notResizable(pod, container, Reason.INIT_CONTAINER_NOT_RESIZABLE, `is an init container, and ${why}`);
}

function whyFixed({ isFixed, resizePolicy, state }: DeclaredContainer): string | undefined {
  if (isFixed === true) return 'this kubelet does not resize init containers (1.36 and later do)';
  if (resizePolicy?.cpu === 'RestartContainer' || resizePolicy?.memory === 'RestartContainer')
    return 'its resizePolicy is RestartContainer';
  return state === 'declared' ? 'it has not been created' : undefined;
}

function notResizable(pod: PodDescription, container: string, reason: Reason, what: string): ShimError {
  const message = `container ${container} of pod ${podName(pod)} ${what}: it cannot be resized`;
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { pod: pod.metadata.uid, container });
}
