import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { bytes } from '../../core/quantities/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type Limits, podName } from '../../sandbox/index.ts';
import { type DesiredPod, formatMemory, formatMilli } from '../model/index.ts';
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
 * Throws EXCEEDS_NODE for a memory limit above that of a cgroup above the pod's: it would never be reached. A limit above the node's
 * size is allowed, as in Kubernetes.
 */
export function assertWithinCgroups(
  parts: Pick<AllocatableParts, 'tree'>,
  pod: PodDescription,
  { pod: own, containers }: DesiredPod,
): void {
  const all: [string, Limits][] = [
    [`pod ${podName(pod)}`, own],
    ...[...containers].map(([name, limits]): [string, Limits] => [`container ${name}`, limits]),
  ];
  const [least] = [...limitsAbove(parts, pod).memory].sort((one, other) => one.amount - other.amount);
  if (least === undefined) return;
  for (const [whose, { memory }] of all) {
    if (memory === undefined || memory === 'max' || memory <= least.amount) continue;
    const message = `${whose}: memory.max ${memory} is more than ${least.amount}: ${least.source}`;
    const found = String(least.amount);
    const context = { pod: pod.metadata.uid, file: 'memory.max', asked: String(memory), found };
    throw new ShimError(Code.FAILED_PRECONDITION, Reason.EXCEEDS_NODE, message, context);
  }
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
