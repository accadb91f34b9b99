import { ContainerState, type PodDescription } from '../../runtime/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import {
  type ContainerStepParts,
  type OnHigh,
  ROLLBACK_MS,
  type RestoreLimitsParts,
  restoreLimits,
} from '../execute/index.ts';
import { type FailOpen, type LiveContainer, containerCgroup, readContainer } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

export interface PassThroughUpdateParts extends ContainerStepParts {
  /** Counts a request that is forwarded unchanged, and logs it once for each id and reason. */
  readonly failOpen: FailOpen;
}

/**
 * Forwards an update that sets no limit (for example a cpuset of kubelet's CPU manager) without waiting for a resize of its pod,
 * but not during another update of the same container. The runtime writes all its stored values with the update, and they may be
 * older than the kernel's: then the kernel's values are restored (kubernetes/kubernetes#138732).
 */
export async function passThroughUpdate(
  parts: PassThroughUpdateParts,
  containerId: string,
  pod: PodDescription,
  forward: () => Promise<Buffer>,
): Promise<Buffer> {
  return parts.calls.run(containerId, async () => {
    const before = await limitsNow(parts, containerId, pod);
    const response = await forward();
    if (before !== undefined) await restoreAndLog(parts, pod, before, 'the runtime wrote stored limits');
    return response;
  });
}

/**
 * Restores the limits that a container had before. Never rejects: the caller has an answer of its own, and the next request reads
 * the limits again. The caller holds the container's `calls` lock.
 */
export async function restoreAndLog(
  parts: RestoreLimitsParts,
  pod: PodDescription,
  before: LiveContainer,
  why: string,
  onHigh?: OnHigh,
): Promise<void> {
  const { id } = before;
  try {
    const changed = await restoreLimits(parts, pod, before, Date.now() + ROLLBACK_MS, onHigh);
    if (changed !== undefined)
      parts.log.warn(
        { pod: pod.sandboxId, container: id, found: foundForLog(changed), why },
        'container limits restored',
      );
  } catch (error) {
    parts.log.error({ pod: pod.sandboxId, container: id, error: messageOf(error) }, 'container limits not restored');
  }
}

/** Reads the container's limits from the kernel. Undefined when it does not run, or they cannot be read. */
async function limitsNow(
  parts: PassThroughUpdateParts,
  containerId: string,
  pod: PodDescription,
): Promise<LiveContainer | undefined> {
  try {
    const container = await parts.registry.describeContainer(containerId);
    if (container?.state !== ContainerState.RUNNING) return undefined;
    const cgroup = await containerCgroup(container, pod, parts.procRoot);
    return cgroup === undefined ? undefined : await readContainer(parts.tree, cgroup, containerId);
  } catch (error) {
    parts.failOpen('unreadable_state', containerId, error);
    return undefined;
  }
}

const foundForLog = ({ memory, cpu, shares }: ContainerStep): string =>
  [memory?.from, cpu && `${cpu.from.quota} ${cpu.from.period}`, shares && `${shares.from} shares`]
    .filter((found) => found !== undefined)
    .join(', ');
