import { criOfCpuMax, criOfMemoryMax } from '../cgroups/index.ts';
import { Code, Reason, ShimError } from '../errors/index.ts';
import type { LinuxContainerResources, PodDescription } from '../runtime/index.ts';
import type { ResizeContext } from './context.ts';
import { containerCgroup, podCgroup } from './live.ts';
import { containerNamed, lowerMemory } from './room.ts';
import type { ContainerStep } from './state.ts';

/**
 * Asks the runtime for one container's new values, and looks whether the kernel has them: a runtime that stops half-way may
 * have written one and not the other. Throws what the runtime answers, CGROUP_WRITE_FAILED when it said yes and the kernel
 * has something else. A memory limit is lowered once the use is under it: throws as {@link lowerMemory}.
 */
export async function updateByRuntime(
  context: ResizeContext,
  pod: PodDescription,
  step: ContainerStep,
  deadline: number,
): Promise<void> {
  const call = async (): Promise<void> => {
    await context.backend.runtime('UpdateContainerResources', { container_id: step.id, linux: resourcesOf(step) });
  };
  const before = await context.registry.describeContainer(step.id);
  const from = before === undefined ? undefined : await containerCgroup(before, pod, context.procRoot);
  if (before === undefined || from === undefined || step.memory === undefined) await call();
  else
    await lowerMemory(context, { ...containerNamed(before, pod), cgroup: from, memory: step.memory }, deadline, call);
  const container = await context.registry.describeContainer(step.id);
  const cgroup = container === undefined ? undefined : await containerCgroup(container, pod, context.procRoot);
  if (cgroup === undefined) throw differs(pod, step, podCgroup(pod), 'no cgroup');
  const { memoryMax, cpuMax } = await context.tree.readLimits(cgroup);
  const { memory, cpu } = step;
  if (memory !== undefined && !context.tree.holds(memory.to, memoryMax))
    throw differs(pod, step, `${cgroup}/memory.max`, String(memoryMax));
  if (cpu !== undefined && (cpuMax?.quota ?? 'max') !== cpu.to.quota)
    throw differs(pod, step, `${cgroup}/cpu.max`, String(cpuMax?.quota));
}

/** In CRI's words: what is not there keeps, -1 takes a limit away. */
function resourcesOf({ memory, cpu, shares }: ContainerStep): Partial<LinuxContainerResources> {
  const max = cpu === undefined ? undefined : criOfCpuMax(cpu.to);
  return {
    ...(memory && { memory_limit_in_bytes: BigInt(criOfMemoryMax(memory.to)) }),
    ...(max && { cpu_quota: BigInt(max.quota), cpu_period: BigInt(max.period) }),
    ...(shares && { cpu_shares: BigInt(shares.to) }),
  };
}

function differs(pod: PodDescription, { id, memory, cpu }: ContainerStep, file: string, found: string): ShimError {
  const asked = memory === undefined ? String(cpu?.to.quota) : String(memory.to);
  const message = `${file}: the runtime was asked for ${asked} and said yes, the kernel has ${found}`;
  const context = { pod: pod.sandboxId, container: id, file, asked, found };
  return new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, context);
}
