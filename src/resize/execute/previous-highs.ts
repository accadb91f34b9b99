import { type CgroupPath, type CgroupTree, isCgroupVanished } from '../../cgroups/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { type CgroupLookup, podCgroup, runningCgroup } from '../../sandbox/index.ts';
import { type Change, type Step, compareLimits } from '../model/index.ts';
import type { PreviousHigh } from '../journal/index.ts';

export interface PreviousHighsParts extends CgroupLookup {
  readonly tree: CgroupTree;
}

/** Returns memory.high of each cgroup in which these steps may lower it, for the journal. */
export async function previousHighs(
  parts: PreviousHighsParts,
  pod: PodDescription,
  steps: readonly Step[],
): Promise<readonly PreviousHigh[]> {
  const highs: PreviousHigh[] = [];
  for (const step of steps) {
    const cgroup = await loweredCgroup(parts, pod, step);
    if (cgroup === undefined) continue;
    try {
      highs.push({ cgroup, memoryHigh: parts.tree.readHigh(cgroup) });
    } catch (error) {
      // The cgroup has ended: nothing will be lowered there.
      if (!isCgroupVanished(error)) throw error;
    }
  }
  return highs;
}

async function loweredCgroup(
  parts: PreviousHighsParts,
  pod: PodDescription,
  step: Step,
): Promise<CgroupPath | undefined> {
  if (step.kind === 'pod-memory') return isLowering(step) ? podCgroup(pod) : undefined;
  if (step.kind !== 'container' || step.memory === undefined || !isLowering(step.memory)) return undefined;
  return runningCgroup(parts, pod, step.id);
}

const isLowering = ({ from, to }: Change<Limit<Bytes>>): boolean => compareLimits(to, from) < 0;
