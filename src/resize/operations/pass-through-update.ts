import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { type ContainerStepParts, type OnHigh, ROLLBACK_MS, restoreLimits } from '../execute/index.ts';
import { type FailOpen, type LiveContainer, containerCgroup, readContainer } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

export interface PassThroughUpdateParts extends ContainerStepParts {
  /** Counts that a request goes on as it came, and says so once for each id and reason. */
  readonly failOpen: FailOpen;
}

/**
 * An update that sets no limit (the CPU manager's cpusets) passes without waiting for a resize of its pod, but not in the
 * middle of an update of the same container. The runtime sends all that it has stored with it, and what it has stored may be
 * older than what the kernel has: then the kernel's values are put back (kubernetes 138732).
 */
export async function passThroughUpdate(
  context: PassThroughUpdateParts,
  container: ContainerDescription,
  pod: PodDescription,
  forward: () => Promise<Buffer>,
): Promise<Buffer> {
  if (container.state !== ContainerState.RUNNING) return forward();
  return context.calls.run(container.containerId, async () => {
    const before = await limitsNow(context, container, pod);
    const response = await forward();
    if (before !== undefined) await restoreAndLog(context, pod, before, 'an update of other values carried old limits');
    return response;
  });
}

/**
 * Gives a container the limits back that it had, where it has others. Never rejects: the caller has an answer of its own, and
 * what could not be put back is seen at the next request. The container's `calls` is held.
 */
export async function restoreAndLog(
  context: Pick<PassThroughUpdateParts, 'registry' | 'backend' | 'tree' | 'cgroups' | 'log' | 'counters' | 'procRoot'>,
  pod: PodDescription,
  before: LiveContainer,
  why: string,
  onHigh?: OnHigh,
): Promise<void> {
  const { id } = before;
  try {
    const changed = await restoreLimits(context, pod, before, Date.now() + ROLLBACK_MS, onHigh);
    if (changed !== undefined)
      context.log.warn(
        { pod: pod.sandboxId, container: id, found: foundForLog(changed) },
        `${why}: limits were put back`,
      );
  } catch (error) {
    context.log.error({ pod: pod.sandboxId, container: id, error: messageOf(error) }, 'container limits not restored');
  }
}

/** What the kernel has; undefined when it cannot be read: there is then nothing to compare with. */
async function limitsNow(
  context: { readonly tree: CgroupTree; readonly procRoot?: string; readonly failOpen: FailOpen },
  container: ContainerDescription,
  pod: PodDescription,
): Promise<LiveContainer | undefined> {
  try {
    const cgroup = await containerCgroup(container, pod, context.procRoot);
    return cgroup === undefined ? undefined : await readContainer(context.tree, cgroup, container.containerId);
  } catch (error) {
    context.failOpen('unreadable_state', container.containerId, error);
    return undefined;
  }
}

const foundForLog = ({ memory, cpu, shares }: ContainerStep): string =>
  [memory?.from, cpu && `${cpu.from.quota} ${cpu.from.period}`, shares && `${shares.from} shares`]
    .filter((found) => found !== undefined)
    .join(', ');
