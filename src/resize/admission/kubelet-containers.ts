import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { ResourceManagers } from '../../kubelet/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type PodState, containerSubject, podName } from '../../sandbox/index.ts';
import type { DesiredPod } from '../model/index.ts';
import { type ContainerAmounts, amountsAfter, amountsNow } from './container-amounts.ts';
import { RESOURCES, type Resource } from './pod-requests.ts';

/**
 * Throws EXCLUSIVE_CPUS for a container whose CPU changes and that has CPUs of its own from kubelet's static CPU manager, and
 * PINNED_MEMORY for one whose memory changes and is assigned by the static memory manager. kubelet assigned them for the old values,
 * and does not resize such containers (kubelet pkg/kubelet/allocation/handlers.go).
 */
export function assertNotAssigned(
  { managers }: { readonly managers: ResourceManagers },
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
): void {
  const { uid } = pod.metadata;
  for (const { name, resource } of changedResources(state, desired)) {
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
  before?.limits[resource] !== after.limits[resource] || before?.requests[resource] !== after.requests[resource];

function rejected(reason: Reason, pod: PodDescription, name: string, why: string, found: string): ShimError {
  const { text, ids } = containerSubject({ name }, pod);
  const message = `${text} of pod ${podName(pod)}: ${why}`;
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { ...ids, found });
}
