import type { CgroupPath } from '../../cgroups/index.ts';
import { cpuShares, messageOf, steadyNow } from '../../core/index.ts';
import {
  ContainerState,
  isNeverSent,
  isNotServing,
  isUnanswered,
  type LinuxContainerResources,
  type PodDescription,
} from '../../runtime/index.ts';
import type { RequestReport } from '../history/request-recorder.ts';
import type { Node } from '../node.ts';
import { lateError } from '../plan/failures.ts';
import type { ContainerStep } from '../plan/step.ts';
import { containerChanges } from '../plan/steps.ts';
import type { KnownContainer } from '../pods/container-lists.ts';
import type { ContainerLimits, EffectiveLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { readContainer, readPod, withExactQuota } from '../pods/read-pod.ts';
import { settingsIn } from '../pods/stored-limits.ts';
import { restoreLimits } from '../transaction/container-step.ts';
import { verifyUpdate } from '../transaction/container-update.ts';
import { withoutUnchanged } from '../transaction/container-values.ts';
import { type OnHigh, ROLLBACK_MS } from '../transaction/lower-memory.ts';
import { Transaction } from '../transaction/transaction.ts';
import { derivedPodLimits } from '../values/derived-values.ts';
import { asksSwap, otherValues } from '../values/written-along.ts';

/** An update of a running container that is forwarded to the runtime. */
export interface ForwardedUpdate {
  readonly cgroup: CgroupPath;
  /** The values to restore if the update fails. Undefined if none were read. */
  readonly before: LiveContainer | undefined;
  /** The changes of the update, including values that the runtime has stored. Undefined if there are none. */
  readonly changes: ContainerStep | undefined;
  /** Whether an unanswered update is left to the recovery of its pod, because it may still arrive. */
  readonly isRecovered?: boolean;
}

export interface Forwarded {
  readonly response: Buffer;
  /** The container's limits, if the runtime has chosen other limits than requested. */
  readonly found?: EffectiveLimits;
}

/**
 * Forwards an update to the runtime, and verifies it in the kernel (KEP-1287: the status has the new values once they
 * are applied). If the update fails midway, or leaves an old limit in the kernel, restores the previous values. Throws
 * the runtime's error, and CGROUP_WRITE_FAILED.
 */
export async function forwardUpdate(
  node: Node,
  pod: PodDescription,
  { cgroup, before, changes, isRecovered = false }: ForwardedUpdate,
  forward: () => Promise<Buffer>,
  onHigh: OnHigh | undefined,
): Promise<Forwarded> {
  try {
    const response = await forward();
    if (changes === undefined) return { response };
    const { files, limits } = await verifyUpdate(node, pod, cgroup, withoutUnchanged(changes));
    const fields = { pod: pod.sandboxId, container: changes.id, files: files.join(', ') };
    if (files.length > 0) node.log.warn(fields, 'runtime applied other values than requested');
    return { response, ...(limits && { found: limits }) };
  } catch (error) {
    const isLeft = isNeverSent(error) || (isRecovered && isUnanswered(error));
    if (before !== undefined && !isLeft) await restoreAndLog(node, pod, before, 'the runtime failed midway', onHigh);
    throw error;
  }
}

/** The planned effect of an update on the limits of its pod. */
interface PlannedPod {
  /** The pod before the update. */
  readonly before: PodState;
  /** The pod limits for the requested values. Of these, only raised limits are already set. */
  readonly planned: Limits;
  /** Bounds the derived pod limits. */
  readonly bound: (derived: Limits) => Limits;
}

/**
 * Derives the pod limits from the kernel's limits of the containers, if the runtime has chosen other limits than
 * requested. Never rejects: the caller's update is applied.
 */
export async function followKernel(
  node: Node,
  pod: PodDescription,
  { before, planned, bound }: PlannedPod,
  containers: readonly ContainerLimits[],
): Promise<void> {
  try {
    const now = await readPod(node.tree, pod, []);
    // Restores a pod limit that this update has raised, unless the container needs it.
    const raised = {
      ...(planned.memory !== undefined && now.memory === planned.memory && { memory: before.memory }),
      ...(planned.cpu !== undefined && now.cpu.quota === planned.cpu.quota && { cpu: before.cpu }),
    };
    const target = { ...raised, ...bound(await derivedPodLimits(node, pod, before, containers)) };
    const transaction = await Transaction.begin(node, pod, now, { ...target, call: 'none', volumes: new Map() });
    await transaction.apply();
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, error: messageOf(error) }, 'pod limit not adapted to the limits in the kernel');
  }
}

interface PassThroughOptions {
  readonly report: RequestReport;
  /** The caller's deadline, in milliseconds by steadyNow. Infinity without a deadline. */
  readonly deadline: number;
}

/**
 * Forwards an update that sets no limit (for example a cpuset of kubelet's CPU manager) without waiting for a resize of
 * its pod, but not during another update of the same container. For an update that sets shares, the caller holds the
 * pod's lock. The runtime writes all its stored values with the update. If they are older than the kernel's, the
 * kernel's values are restored (kubernetes/kubernetes#138732). The update itself is verified, and rolled back when it
 * fails midway; see {@link forwardUpdate}. Throws DEADLINE, without sending anything, if the deadline passes while it
 * waits.
 */
export async function passThroughUpdate(
  node: Node,
  { containerId, name }: KnownContainer,
  pod: PodDescription,
  request: LinuxContainerResources | null,
  forward: () => Promise<Buffer>,
  { report, deadline }: PassThroughOptions,
): Promise<Buffer> {
  const update = async (): Promise<Buffer> => {
    const known = await valuesNow(node, containerId, pod, request);
    if (known === undefined) return forward();
    const { response } = await reported(report, known.changes, () =>
      forwardUpdate(node, pod, known, forward, undefined),
    );
    await restoreAndLog(node, pod, unasked(known.before, request), 'the runtime wrote stored limits');
    return response;
  };
  return node.calls.runBy(containerId, update, deadline, () => lateError(pod, `an update of container ${name}`));
}

/** Records an update that changes the container's CPU request. Other updates, such as cpusets, are not resizes. */
async function reported<Result>(
  report: RequestReport,
  changes: ContainerStep | undefined,
  update: () => Promise<Result>,
): Promise<Result> {
  const { id, shares } = changes ?? {};
  if (id === undefined || shares === undefined || shares.from === shares.to) return update();
  report.begins([{ kind: 'container', id, shares }]);
  try {
    const result = await update();
    report.completed();
    return result;
  } catch (error) {
    report.failed(error);
    throw error;
  }
}

/** Returns the values that the request does not change. */
function unasked(before: LiveContainer, request: LinuxContainerResources | null): LiveContainer {
  const { settings = {}, swap, id, memory, cpu } = before;
  const files = settingsIn(request);
  const left = Object.entries(settings).filter(([file]) => !(file in files));
  return {
    id,
    memory,
    cpu,
    ...(swap !== undefined && !asksSwap(request) && { swap }),
    settings: Object.fromEntries(left),
  };
}

/** Reads the container's values from the kernel. Undefined when it does not run, or they cannot be read. */
async function valuesNow(
  node: Node,
  containerId: string,
  pod: PodDescription,
  request: LinuxContainerResources | null,
): Promise<{ cgroup: CgroupPath; before: LiveContainer; changes: ContainerStep | undefined } | undefined> {
  try {
    const container = await node.registry.describeContainer(containerId);
    if (container?.state !== ContainerState.CONTAINER_RUNNING) return undefined;
    const cgroup = await node.cgroups.of(container, pod);
    if (cgroup === undefined) return undefined;
    const found = readContainer(node.tree, cgroup, containerId);
    const now = withExactQuota(found, cgroup, container.resources);
    if (now === undefined) return undefined;
    const others = otherValues(node.tree, cgroup, container.resources, request, now.memory);
    const [stored, asked] = [container.resources?.cpu_shares ?? 0n, request?.cpu_shares ?? 0n];
    const shares = stored > 0n && asked > 0n && { before: cpuShares(Number(stored)), after: cpuShares(Number(asked)) };
    const before = { ...now, ...others.before, ...(shares && { shares: shares.before }) };
    const after = { id: now.id, ...others.after, ...(shares && { shares: shares.after }) };
    return { cgroup, before, changes: containerChanges(before, after) };
  } catch (error) {
    // If the update were forwarded a moment later, it would write stored limits that nothing restores.
    if (isNotServing(error)) throw error;
    node.failOpen('unreadable_state', containerId, error);
    return undefined;
  }
}

/**
 * Restores the limits that a container had before. Never rejects: the caller already has its answer, and the next
 * request reads the limits again. The caller holds the container's `calls` lock.
 */
export async function restoreAndLog(
  node: Node,
  pod: PodDescription,
  before: LiveContainer,
  why: string,
  onHigh?: OnHigh,
): Promise<void> {
  const { id } = before;
  try {
    const changed = await restoreLimits(node, pod, before, { until: steadyNow() + ROLLBACK_MS, onHigh });
    if (changed !== undefined)
      node.log.warn(
        { pod: pod.sandboxId, container: id, found: foundForLog(changed), why },
        'container limits restored',
      );
  } catch (error) {
    node.log.error({ pod: pod.sandboxId, container: id, error: messageOf(error) }, 'container limits not restored');
  }
}

const foundForLog = ({ memory, cpu, shares, swap, settings = {} }: ContainerStep): string =>
  [
    memory && memory.from !== memory.to ? memory.from : undefined,
    cpu && `${cpu.from.quota} ${cpu.from.period}`,
    shares && `${shares.from} shares`,
    swap && swap.from !== swap.to ? `swap ${swap.from}` : undefined,
    ...Object.entries(settings).flatMap(([file, { from, to }]) => (from === to ? [] : [`${file} ${from}`])),
  ]
    .filter((found) => found !== undefined)
    .join(', ');
