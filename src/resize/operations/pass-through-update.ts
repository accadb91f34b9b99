import {
  ContainerState,
  type LinuxContainerResources,
  type PodDescription,
  isNotServing,
} from '../../runtime/index.ts';
import type { CgroupPath } from '../../cgroups/index.ts';
import { cpuShares } from '../../core/quantities/index.ts';
import type { ContainerStepParts } from '../execute/index.ts';
import {
  type FailOpen,
  type KnownContainer,
  type LiveContainer,
  containerCgroup,
  readContainer,
  settingsIn,
  withExactQuota,
} from '../../sandbox/index.ts';
import { type ContainerStep, lateError } from '../model/index.ts';
import { containerChanges } from '../plan/index.ts';
import { forwardUpdate } from './forward-update.ts';
import { restoreAndLog } from './restore-and-log.ts';
import type { RequestReport } from '../history/index.ts';
import { asksSwap, otherValues } from '../values/index.ts';

export interface PassThroughUpdateParts extends ContainerStepParts {
  /** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
  readonly failOpen: FailOpen;
}

interface PassThroughOptions {
  readonly report: RequestReport;
  /** The caller's, in milliseconds by steadyNow; Infinity without one. */
  readonly deadline: number;
}

/**
 * Forwards an update that sets no limit (for example a cpuset of kubelet's CPU manager) without waiting for a resize of
 * its pod, but not during another update of the same container. For one that sets shares, the caller holds the pod's
 * lock. The runtime writes all its stored values with the update, and they may be older than the kernel's: then the
 * kernel's values are restored (kubernetes/kubernetes#138732). The update itself is verified, and rolled back when it
 * fails midway; see {@link forwardUpdate}. Throws DEADLINE when its turn has not come by the deadline: nothing is sent then.
 */
export async function passThroughUpdate(
  parts: PassThroughUpdateParts,
  { containerId, name }: KnownContainer,
  pod: PodDescription,
  request: LinuxContainerResources | null,
  forward: () => Promise<Buffer>,
  { report, deadline }: PassThroughOptions,
): Promise<Buffer> {
  const update = async (): Promise<Buffer> => {
    const known = await valuesNow(parts, containerId, pod, request);
    if (known === undefined) return forward();
    const { response } = await reported(report, known.changes, () =>
      forwardUpdate(parts, pod, known, forward, undefined),
    );
    await restoreAndLog(parts, pod, unasked(known.before, request), 'the runtime wrote stored limits');
    return response;
  };
  return parts.calls.runBy(containerId, update, deadline, () => lateError(pod, `an update of container ${name}`));
}

/** Records an update that changes the container's CPU request. Others, such as cpusets, are no resizes. */
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

/** Returns the values that the caller does not ask to change. */
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
  parts: PassThroughUpdateParts,
  containerId: string,
  pod: PodDescription,
  request: LinuxContainerResources | null,
): Promise<{ cgroup: CgroupPath; before: LiveContainer; changes: ContainerStep | undefined } | undefined> {
  try {
    const container = await parts.registry.describeContainer(containerId);
    if (container?.state !== ContainerState.RUNNING) return undefined;
    const cgroup = await containerCgroup(container, pod, parts.procRoot);
    if (cgroup === undefined) return undefined;
    const found = await readContainer(parts.tree, cgroup, containerId);
    const now = withExactQuota(found, cgroup, container.resources);
    if (now === undefined) return undefined;
    const others = otherValues(parts.tree, cgroup, container.resources, request, now.memory);
    const [stored, asked] = [container.resources?.cpu_shares ?? 0n, request?.cpu_shares ?? 0n];
    const shares = stored > 0n && asked > 0n && { before: cpuShares(Number(stored)), after: cpuShares(Number(asked)) };
    const before = { ...now, ...others.before, ...(shares && { shares: shares.before }) };
    const after = { id: now.id, ...others.after, ...(shares && { shares: shares.after }) };
    return { cgroup, before, changes: containerChanges(before, after) };
  } catch (error) {
    // Forwarded a moment later, the update would write stored limits that nothing restores.
    if (isNotServing(error)) throw error;
    parts.failOpen('unreadable_state', containerId, error);
    return undefined;
  }
}
