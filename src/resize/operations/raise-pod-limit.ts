import { messageOf } from '../../core/errors/index.ts';
import {
  type Backend,
  type ContainerDescription,
  ContainerState,
  type LinuxContainerResources,
  type PodDescription,
} from '../../runtime/index.ts';
import {
  type EffectiveLimits,
  type FailOpen,
  type Registry,
  hasPodCgroup,
  readPod,
  storedLimits,
} from '../../sandbox/index.ts';
import { type PerformParts, type RecoverParts, perform, tryRecoverPod } from '../execute/index.ts';
import { compareCpu, compareLimits } from '../model/index.ts';
import { podLimitsFor } from '../plan/index.ts';

export interface AdmitRestartParts extends PerformParts, RecoverParts {
  /** Counts that a request goes on as it came, and says so once for each id and reason. */
  readonly failOpen: FailOpen;
}

/**
 * A container is about to start with more than it had when it last ran, or was made with, and nobody has raised the pod's
 * limit for it (kubernetes 138760): it is raised as for a resize. The pod's lock is held. Never rejects: the container starts
 * as it would without us.
 */
export async function raisePodLimit(
  context: PerformParts,
  pod: PodDescription,
  containerId: string,
  before: EffectiveLimits | undefined,
  then: EffectiveLimits | undefined,
): Promise<void> {
  if (before === undefined || then === undefined || !hasPodCgroup(pod)) return;
  try {
    const state = await readPod(context.tree, pod, []);
    const others = state.containers.filter(({ id }) => id !== containerId);
    const formerly = { ...state, containers: [...others, { id: containerId, ...before }] };
    const { memory, cpu } = podLimitsFor(formerly, [{ id: containerId, ...then }]);
    const raised = {
      ...(memory !== undefined && compareLimits(memory, state.memory) > 0 && { memory }),
      ...(cpu !== undefined && compareCpu(cpu, state.cpu) > 0 && { cpu }),
    };
    const steps = await perform(context, pod, state, { ...raised, call: 'none', volumes: new Map() });
    if (steps.length > 0)
      context.log.info({ pod: pod.sandboxId, container: containerId }, 'pod limit raised for a container');
  } catch (error) {
    context.log.warn({ pod: pod.sandboxId, container: containerId, error: messageOf(error) }, 'pod limit not raised');
  }
}

/**
 * A container has been made in a pod: if it takes the place of one of its name, the pod's limit gets room for what it has more.
 */
export async function raisePodForRestart(
  context: AdmitRestartParts,
  sandboxId: string,
  containerId: string,
  name: string,
  resources: LinuxContainerResources | null | undefined,
): Promise<void> {
  const then = storedLimits(resources);
  if (then === undefined) return;
  try {
    const pod = await context.registry.pod(sandboxId);
    const former = await previousContainer(context, sandboxId, containerId, name);
    if (pod === undefined || former === undefined) return;
    await context.lock.run(sandboxId, async () => {
      await tryRecoverPod(context, pod);
      await raisePodLimit(context, pod, containerId, storedLimits(former.resources), then);
    });
  } catch (error) {
    context.failOpen('unreadable_state', containerId, error);
  }
}

/**
 * The last container of this name that has run. One that was made and never started has given the pod nothing: its maker may
 * never have heard of it, when we ended before it was answered.
 */
async function previousContainer(
  context: { readonly registry: Registry; readonly backend: Backend },
  sandboxId: string,
  containerId: string,
  name: string,
): Promise<ContainerDescription | undefined> {
  // Of the backend: some may have been made past us.
  const { containers } = await context.backend.runtime('ListContainers', { filter: { pod_sandbox_id: sandboxId } });
  const namesakes = containers.filter(({ id, metadata }) => id !== containerId && metadata?.name === name);
  namesakes.sort((a, b) => Number(b.created_at - a.created_at));
  for (const { id } of namesakes) {
    const former = await context.registry.describeContainer(id);
    if (former !== undefined && former.state !== ContainerState.CREATED) return former;
  }
  return undefined;
}
