import type { PodDescription } from '../../runtime/index.ts';
import type { CgroupTree, SwapLimits } from '../../cgroups/index.ts';
import type { Log } from '../../observe/index.ts';
import { blockingUse, withSubject } from '../admission/index.ts';
import { type ContainerLimits, type Limits, type PodState, podCgroup, podSubject } from '../../sandbox/index.ts';
import type { PodJournal } from '../journal/index.ts';
import { ifTheyArrive, podLimitsFor } from '../plan/index.ts';

/**
 * Returns the pod limits that go with updates of its containers, with room for earlier updates that the runtime has not answered. A
 * memory decrease that the pod's usage blocks is omitted with a warning, since no caller asked for it (KEP-1287: a limit is not lowered
 * below usage). Throws INVALID_VALUE as {@link podLimitsFor}.
 *
 * @param swapAfter the limits on swap that the updates lower
 */
export async function derivedPodLimits(
  parts: { readonly tree: CgroupTree; readonly journal: PodJournal; readonly log: Log },
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
  swapAfter?: SwapLimits,
): Promise<Limits> {
  const atMost = ifTheyArrive(state, parts.journal.unanswered.of(pod.sandboxId));
  const { text, ids } = podSubject(pod);
  const { memory, ...limits } = withSubject(text, ids, () => podLimitsFor(atMost, targets));
  if (memory === undefined) return limits;
  const change = { cgroup: podCgroup(pod), now: state.memory, wanted: memory, swapAfter };
  const use = await blockingUse(parts.tree, change);
  if (use === undefined) return { ...limits, memory };
  parts.log.warn(
    { pod: pod.sandboxId, asked: memory, unreclaimable: use.unreclaimable },
    'pod limit not lowered with its containers: memory in use cannot be reclaimed',
  );
  return limits;
}
