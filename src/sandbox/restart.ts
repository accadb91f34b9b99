import { DEFAULT_CPU_PERIOD, cpuMaxOfCri, memoryMaxOfCri } from '../cgroups/index.ts';
import { messageOf } from '../errors/index.ts';
import type { LinuxContainerResources, PodDescription } from '../runtime/index.ts';
import type { CpuMax, Limit, Bytes } from '../units/index.ts';
import type { ResizeContext } from './context.ts';
import { hasPodCgroup, podCgroup, readPod } from './live.ts';
import { compareCpu, compareLimits, podLimitsFor } from './plan.ts';

/** The limits that a container starts with. */
export interface StoredLimits {
  readonly memory: Limit<Bytes>;
  readonly cpu: CpuMax;
}

/** Those in a CRI message; undefined when it has none, or none with a meaning. */
export function storedLimits(resources: LinuxContainerResources | null | undefined): StoredLimits | undefined {
  if (resources === null || resources === undefined) return undefined;
  try {
    const cpu = cpuMaxOfCri(resources.cpu_quota, resources.cpu_period, undefined);
    return {
      memory: memoryMaxOfCri(resources.memory_limit_in_bytes) ?? 'max',
      cpu: cpu ?? { quota: 'max', period: DEFAULT_CPU_PERIOD },
    };
  } catch {
    // The runtime refuses it too, and tells its caller.
    return undefined;
  }
}

/**
 * A container is about to start with more than it had when it last ran, or was made with, and nobody has raised the pod's
 * limit for it (kubernetes 138760): it is raised as for a resize. The pod's lock is held. Never rejects: the container starts
 * as it would without us.
 */
export async function raisePodFor(
  context: ResizeContext,
  pod: PodDescription,
  containerId: string,
  before: StoredLimits | undefined,
  then: StoredLimits | undefined,
): Promise<void> {
  if (before === undefined || then === undefined || !hasPodCgroup(pod)) return;
  try {
    const cgroup = podCgroup(pod);
    const state = await readPod(context.tree, pod, []);
    const others = state.containers.filter(({ id }) => id !== containerId);
    const formerly = { ...state, containers: [...others, { id: containerId, ...before }] };
    const { memory, cpu } = podLimitsFor(formerly, [{ id: containerId, ...then }]);
    if (memory !== undefined && compareLimits(memory, state.memory) > 0) {
      await context.tree.write(cgroup, { file: 'memory.max', value: memory });
      context.log.info({ pod: pod.sandboxId, container: containerId, memory }, 'pod limit raised for a container');
    }
    if (cpu !== undefined && compareCpu(cpu, state.cpu) > 0) {
      await context.tree.write(cgroup, { file: 'cpu.max', value: cpu });
      context.log.info(
        { pod: pod.sandboxId, container: containerId, quota: cpu.quota },
        'pod limit raised for a container',
      );
    }
  } catch (error) {
    context.log.warn(
      { pod: pod.sandboxId, container: containerId, error: messageOf(error) },
      'pod limit left as it is',
    );
  }
}

/**
 * A container has been made in a pod: if it takes the place of one of its name, the pod's limit gets room for what it has more.
 */
export async function raisePodForRestart(
  context: ResizeContext,
  sandboxId: string,
  containerId: string,
  name: string,
  resources: LinuxContainerResources | null | undefined,
): Promise<void> {
  const former = context.registry
    .containersOf(sandboxId)
    .findLast((known) => known.name === name && known.containerId !== containerId);
  const then = storedLimits(resources);
  if (former === undefined || then === undefined) return;
  try {
    const pod = await context.registry.pod(sandboxId);
    const before = storedLimits((await context.registry.describeContainer(former.containerId))?.resources);
    if (pod !== undefined)
      await context.lock.run(sandboxId, () => raisePodFor(context, pod, containerId, before, then));
  } catch (error) {
    context.failOpen('unreadable_state', containerId, error);
  }
}
