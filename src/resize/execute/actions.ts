import { type CgroupPath, type CgroupTree, isCgroupVanished } from '../../cgroups/index.ts';
import { Reason, ShimError } from '../../core/errors/index.ts';
import { type Counters, type Log, noCounters, noLog } from '../../observe/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { Bytes, Limit } from '../../core/quantities/index.ts';
import { ROLLBACK_MS } from './lower-memory.ts';
import type { StepActions } from './transaction.ts';
import { blockingUse } from '../admission/index.ts';
import { readPod } from '../../sandbox/index.ts';
import { type Change, type ContainerStep, type Step, describeStep } from '../model/index.ts';
import { fitsPreviousLimit, hasRaisedContainer, reversed } from '../plan/index.ts';

/** What the steps of one pod are carried out on. */
export interface StepActionsParts {
  readonly tree: CgroupTree;
  readonly volumes: MemoryVolumes;
  readonly pod: PodDescription;
  readonly cgroup: CgroupPath;
  /** The call to the runtime. */
  readonly call: () => Promise<void>;
  /** Asks the runtime for one container's new values, and checks that the kernel has them. */
  readonly updateContainer: (step: ContainerStep, reclaimBy: number) => Promise<void>;
  /** Runs `set`, which sets the pod's memory limit, once the pod's use is under it. */
  readonly lowerPod: (memory: Change<Limit<Bytes>>, reclaimBy: number, set: () => Promise<void>) => Promise<void>;
  /** Until when memory may be reclaimed, in milliseconds since the epoch; for undoing there is time of its own. */
  readonly reclaimBy: number;
  /** Takes that back, where the kernel has not the old values. */
  readonly rollBackContainer: (step: ContainerStep, reclaimBy: number) => Promise<void>;
  /** The updates of containers that go with the pod's own steps, the caller's among them. */
  readonly updates: readonly ContainerStep[];
  readonly log?: Log;
  readonly counters?: Counters;
}

/** Carries steps out on the kernel and the runtime, and takes them back within the rules that hold at any time. */
export function stepActions({
  tree,
  volumes,
  pod,
  cgroup,
  call,
  updateContainer,
  rollBackContainer: rollBackContainer,
  lowerPod,
  reclaimBy,
  updates,
  log = noLog,
  counters = noCounters,
}: StepActionsParts): StepActions {
  const apply = async (step: Step, deadline: number): Promise<unknown> => {
    switch (step.kind) {
      case 'volume':
        return remount(volumes, pod, step, counters);
      case 'pod-memory':
        return lowerPod(step, deadline, async () => {
          await tree.write(cgroup, { file: 'memory.max', value: step.to });
        });
      case 'pod-cpu':
        return tree.write(cgroup, { file: 'cpu.max', value: step.to });
      case 'pod-weight':
        return tree.write(cgroup, { file: 'cpu.weight', value: step.to });
      case 'pod-unified':
        return tree.write(cgroup, { file: 'unified', key: step.key, value: step.to });
      case 'container':
        return updateContainer(step, deadline);
      case 'runtime':
        return call();
    }
  };

  /** Whether the pod's limit may go back: a call that failed, or could not be taken back, may have left a container's limit raised. */
  const canRestorePodLimit = async (step: Step): Promise<boolean> => {
    if (step.kind !== 'pod-memory' && step.kind !== 'pod-cpu') return true;
    const now = await readPod(tree, pod, []);
    // A pod that had less than its containers from the start goes back there all the same.
    if (hasRaisedContainer(now, updates, step.kind) && !fitsPreviousLimit(now, step)) return false;
    if (step.kind === 'pod-cpu') return true;
    return (await blockingUse(tree, { cgroup, now: step.to, wanted: step.from })) === undefined;
  };

  const rollBackStep = async (step: Step): Promise<void> => {
    if (step.kind === 'runtime') return;
    if (step.kind === 'container') {
      await rollBackContainer(step, Date.now() + ROLLBACK_MS);
    } else if (await canRestorePodLimit(step)) {
      await apply(reversed(step), Date.now() + ROLLBACK_MS);
    } else {
      log.warn({ pod: pod.sandboxId, step: describeStep(step) }, 'pod limit left raised: its containers need it');
    }
  };

  return {
    async apply(step) {
      await apply(step, reclaimBy);
    },
    async rollBack(step) {
      try {
        await rollBackStep(step);
      } catch (error) {
        // The pod, or the volume, has ended meanwhile, perhaps by what made the step fail: there is nothing to take back.
        if (!isCgroupVanished(error) && !isVolumeGone(error)) throw error;
      }
    },
    skipped(step, error) {
      const why = error instanceof Error ? error.message : String(error);
      log.warn({ pod: pod.sandboxId, step: describeStep(step), error: why }, 'step after the update skipped');
    },
  };
}

async function remount(
  volumes: MemoryVolumes,
  pod: PodDescription,
  { volume, from, to }: Extract<Step, { kind: 'volume' }>,
  counters: Counters,
): Promise<void> {
  const direction = to < from ? 'shrink' : 'grow';
  try {
    const { outcome } = await volumes.remount({ podUid: pod.metadata.uid, name: volume }, to);
    if (outcome === 'remounted') counters.remount(direction, 'done');
  } catch (error) {
    counters.remount(direction, isInUse(error) ? 'refused' : 'failed');
    throw error;
  }
}

/** It stores more than it was to hold. */
export const isInUse = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.VOLUME_IN_USE;

const isVolumeGone = (error: unknown): boolean => error instanceof ShimError && error.reason === Reason.UNKNOWN_VOLUME;
