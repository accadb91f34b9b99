import { type CgroupPath, type CgroupTree, isCgroupVanished } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { type Registry, podCgroup, runningCgroup } from '../../sandbox/index.ts';
import { type Change, type Step, compareLimits } from '../model/index.ts';
import type { PreviousHigh } from '../journal/index.ts';

export interface PreviousHighsParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  /** Where the cgroups of running containers lie, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** Where processes are found: /proc unless a test says otherwise. */
  readonly procRoot?: string;
}

/** memory.high of each cgroup that these steps may lower it of. */
export async function previousHighs(
  context: PreviousHighsParts,
  pod: PodDescription,
  steps: readonly Step[],
): Promise<readonly PreviousHigh[]> {
  const highs: PreviousHigh[] = [];
  for (const step of steps) {
    const cgroup = await loweredCgroup(context, pod, step);
    if (cgroup === undefined) continue;
    try {
      highs.push({ cgroup, memoryHigh: context.tree.readHigh(cgroup) });
    } catch (error) {
      // It has ended: nothing will be lowered there.
      if (!isCgroupVanished(error)) throw error;
    }
  }
  return highs;
}

async function loweredCgroup(
  context: PreviousHighsParts,
  pod: PodDescription,
  step: Step,
): Promise<CgroupPath | undefined> {
  if (step.kind === 'pod-memory') return isLowering(step) ? podCgroup(pod) : undefined;
  if (step.kind !== 'container' || step.memory === undefined || !isLowering(step.memory)) return undefined;
  return runningCgroup(context, pod, step.id);
}

const isLowering = ({ from, to }: Change<Limit<Bytes>>): boolean => compareLimits(to, from) < 0;
