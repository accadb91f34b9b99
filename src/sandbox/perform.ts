import { Code, Reason, ShimError } from '../errors/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import { stepActions } from './actions.ts';
import type { ResizeContext } from './context.ts';
import { updateByRuntime } from './container-step.ts';
import { podCgroup } from './live.ts';
import { plan } from './plan.ts';
import { lowerMemory, podNamed, reclaimBy } from './room.ts';
import type { PodState, PodTarget, Step } from './state.ts';
import { type StepRecord, carryOut, describeStep } from './transaction.ts';

/**
 * Plans, admits and carries out a pod's resize; the pod's lock is held by the caller. Throws VOLUME_IN_USE before
 * anything changes when a volume would become smaller than what it stores, else what the first failing step throws, after
 * everything was undone.
 *
 * @param deadline until when memory may be reclaimed, in milliseconds since the epoch.
 */
export async function perform(
  context: ResizeContext,
  pod: PodDescription,
  state: PodState,
  target: PodTarget,
  call: () => Promise<void>,
  deadline = reclaimBy(context),
): Promise<void> {
  const steps = plan(state, target);
  assertVolumesFit(context, pod, steps);
  const start = performance.now();
  const records = await carryOut(
    steps,
    stepActions({
      tree: context.tree,
      volumes: context.volumes,
      pod,
      cgroup: podCgroup(pod),
      call,
      updateContainer: (step, until) => updateByRuntime(context, pod, step, until),
      lowerPod: (memory, until, set) =>
        lowerMemory(context, { ...podNamed(pod), cgroup: podCgroup(pod), memory }, until, set),
      reclaimBy: deadline,
      callRaises: target.call === 'container',
      log: context.log,
    }),
  );
  if (records.some(({ step }) => step.kind !== 'runtime')) {
    const ms = round(performance.now() - start);
    context.log.info({ pod: pod.sandboxId, uid: pod.metadata.uid, ms, steps: records.map(forLog) }, 'pod resized');
  }
}

function assertVolumesFit(context: ResizeContext, pod: PodDescription, steps: readonly Step[]): void {
  const shrinking = steps.filter((step) => step.kind === 'volume').filter((step) => step.to < step.from);
  for (const { volume, from, to } of shrinking) {
    const { used } = context.volumes.measure({ podUid: pod.metadata.uid, name: volume });
    if (used <= to) continue;
    throw new ShimError(
      Code.FAILED_PRECONDITION,
      Reason.VOLUME_IN_USE,
      `volume ${volume} of pod ${pod.metadata.uid} cannot shrink from ${from} to ${to} bytes: ${used} are stored in it`,
      { pod: pod.metadata.uid, volume, asked: String(to), found: String(used) },
    );
  }
}

const forLog = ({ step, at, ms }: StepRecord): Readonly<Record<string, string | number>> => ({
  step: describeStep(step),
  atMs: round(at),
  ms: round(ms),
});

const round = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
