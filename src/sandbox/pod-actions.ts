import type { PodDescription } from '../runtime/index.ts';
import { stepActions } from './actions.ts';
import { takeBackByRuntime, updateByRuntime } from './container-step.ts';
import type { ResizeContext } from './context.ts';
import { podCgroup } from './live.ts';
import type { StepActions } from './transaction.ts';

/**
 * How the steps of this pod are carried out and taken back.
 * @param callRaises whether the caller's call may have raised the limit of a container, also when it failed
 */
export function actionsFor(
  context: ResizeContext,
  pod: PodDescription,
  { call = () => Promise.resolve(), callRaises }: { call?: () => Promise<void>; callRaises: boolean },
): StepActions {
  return stepActions({
    tree: context.tree,
    volumes: context.volumes,
    pod,
    cgroup: podCgroup(pod),
    call,
    updateContainer: (step) => context.calls.run(step.id, () => updateByRuntime(context, pod, step)),
    takeBack: (step) => context.calls.run(step.id, () => takeBackByRuntime(context, pod, step)),
    callRaises,
    log: context.log,
  });
}
