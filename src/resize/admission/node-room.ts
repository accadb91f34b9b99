import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { isKubeletCgroup } from '../../cgroups/index.ts';
import { type Bytes, type Limit, bytes } from '../../core/quantities/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type Limits, type PodState, podName } from '../../sandbox/index.ts';
import { type DesiredPod, compareLimits, formatMemory, formatMilli, sameMemory } from '../model/index.ts';
import { type Allocatable, type AllocatableParts, limitsAbove } from './allocatable.ts';
import { RESOURCES, type Resource, type TotalRequests } from './pod-requests.ts';

export interface RequestsChange {
  readonly before: TotalRequests;
  readonly after: TotalRequests;
}

/** What the node has for the requests of its pods. */
export interface NodeRoom {
  /** Absent: not known. */
  readonly allocatable: { readonly [resource in Resource]?: Allocatable };
  /** What the other pods have requested. */
  readonly others: TotalRequests;
}

/**
 * KEP-1287: a request that the node can never fit is infeasible (EXCEEDS_NODE), one that does not fit next to the requests of the other
 * pods is deferred (NODE_FULL). Limits do not count, and a resource whose request does not rise always fits.
 */
export function assertNodeHasRoom(pod: PodDescription, { before, after }: RequestsChange, room: NodeRoom): void {
  const raised = RESOURCES.filter((resource) => after[resource] > before[resource]);
  const checks = raised.flatMap((resource) => {
    const allocatable = room.allocatable[resource];
    return allocatable === undefined ? [] : [{ resource, asked: after[resource], ...allocatable }];
  });
  // First what can never fit: a retry would not help.
  for (const check of checks) if (check.asked > check.amount) throw exceedsNode(pod, check);
  for (const check of checks) {
    const used = room.others[check.resource];
    if (check.asked + used > check.amount) throw nodeFull(pod, check, used);
  }
}

/**
 * Throws EXCEEDS_NODE for a memory limit that is raised above that of a cgroup above the pod's: it would never be reached. kubelet's own
 * cgroups do not count: kubepods is limited to what the node has for pods, and Kubernetes allows a limit above that, as above the
 * node's size.
 */
export function assertWithinCgroups(
  parts: Pick<AllocatableParts, 'tree'>,
  pod: PodDescription,
  state: PodState,
  { pod: own, containers }: DesiredPod,
): void {
  const all: [string, Limits, Limit<Bytes> | undefined][] = [
    [`pod ${podName(pod)}`, own, state.memory],
    ...[...containers].map(([name, limits]): [string, Limits, Limit<Bytes> | undefined] => [
      `container ${name}`,
      limits,
      memoryOf(state, name),
    ]),
  ];
  const others = limitsAbove(parts, pod, (cgroup) => !isKubeletCgroup(cgroup)).memory;
  const [least] = others.toSorted((one, other) => one.amount - other.amount);
  if (least === undefined) return;
  for (const [whose, { memory }, now] of all) {
    if (memory === undefined || memory === 'max' || memory <= least.amount) continue;
    if (now !== undefined && (compareLimits(memory, now) <= 0 || sameMemory(now, memory))) continue;
    const message = `${whose}: memory.max ${memory} is more than ${least.amount}: ${least.source}`;
    const found = String(least.amount);
    const context = { pod: pod.metadata.uid, file: 'memory.max', asked: String(memory), found };
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.EXCEEDS_NODE, message, context);
  }
}

/** Returns the memory limit that a container has now. Undefined if nothing tells. */
function memoryOf({ declared, containers }: PodState, name: string): Limit<Bytes> | undefined {
  const found = declared?.containers.find((one) => one.name === name);
  const live = containers.find(({ id }) => id === found?.id);
  return live === undefined ? found?.limits && (found.limits.memory ?? 'max') : live.memory;
}

interface Check extends Allocatable {
  readonly resource: Resource;
  readonly asked: number;
}

function exceedsNode(pod: PodDescription, { resource, asked, amount, source }: Check): ShimError {
  const [wanted, most] = [formatOf(resource, asked), formatOf(resource, amount)];
  const message = `pod ${podName(pod)}: a ${nameOf(resource)} request of ${wanted} is more than ${most}: ${source}`;
  return refusal(Reason.EXCEEDS_NODE, pod, message, wanted, most);
}

function nodeFull(pod: PodDescription, { resource, asked, amount, source }: Check, used: number): ShimError {
  const [wanted, most] = [formatOf(resource, asked), formatOf(resource, amount)];
  const free = formatOf(resource, Math.max(0, amount - used));
  const message =
    `pod ${podName(pod)}: a ${nameOf(resource)} request of ${wanted} does not fit now: other pods have requested ` +
    `${formatOf(resource, used)} of ${most} (${source}), ${free} is free`;
  return refusal(Reason.NODE_FULL, pod, message, wanted, free);
}

function refusal(reason: Reason, pod: PodDescription, message: string, asked: string, found: string): ShimError {
  return new ShimError(Code.FAILED_PRECONDITION, reason, message, { pod: pod.metadata.uid, asked, found });
}

const nameOf = (resource: Resource): string => (resource === 'memory' ? 'memory' : 'CPU');
const formatOf = (resource: Resource, amount: number): string =>
  resource === 'memory' ? formatMemory(bytes(amount)) : formatMilli(amount);
