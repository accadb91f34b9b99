import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes, CpuMax, Limit } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import type { Log } from '../../observe/index.ts';
import { blockingUse, withSubject } from '../admission/index.ts';
import { type ContainerLimits, type PodState, podCgroup, podSubject } from '../../sandbox/index.ts';
import { podLimitsFor } from '../plan/index.ts';

/**
 * The pod limits that go with updates of its containers. A lowering of memory that the pod's use forbids is left out, with a
 * warning: nobody has asked for it. Throws INVALID_VALUE as {@link podLimitsFor} does.
 */
export async function derivedPodLimits(
  context: { readonly tree: CgroupTree; readonly log: Log },
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
): Promise<{ memory?: Limit<Bytes>; cpu?: CpuMax }> {
  const { text, ids } = podSubject(pod);
  const { memory, ...limits } = withSubject(text, ids, () => podLimitsFor(state, targets));
  if (memory === undefined) return limits;
  const use = await blockingUse(context.tree, { cgroup: podCgroup(pod), now: state.memory, wanted: memory });
  if (use === undefined) return { ...limits, memory };
  context.log.warn(
    { pod: pod.sandboxId, asked: memory, unreclaimable: use.unreclaimable },
    'pod limit not lowered with its containers: memory in use cannot be reclaimed',
  );
  return limits;
}
