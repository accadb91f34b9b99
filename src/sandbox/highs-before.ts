import { type CgroupPath, isCgroupVanished } from '../cgroups/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import type { Bytes, Limit } from '../units/index.ts';
import { runningCgroup } from './container-step.ts';
import type { ResizeContext } from './context.ts';
import type { PreviousHigh } from './journal/index.ts';
import { podCgroup } from './live.ts';
import { compareLimits } from './plan.ts';
import type { Change, Step } from './state.ts';

/** memory.high of each cgroup that these steps may lower it of. */
export async function highsBefore(
  context: ResizeContext,
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

async function loweredCgroup(context: ResizeContext, pod: PodDescription, step: Step): Promise<CgroupPath | undefined> {
  if (step.kind === 'pod-memory') return isLowering(step) ? podCgroup(pod) : undefined;
  if (step.kind !== 'container' || step.memory === undefined || !isLowering(step.memory)) return undefined;
  return runningCgroup(context, pod, step.id);
}

const isLowering = ({ from, to }: Change<Limit<Bytes>>): boolean => compareLimits(to, from) < 0;
