import { type CgroupPath, type CgroupTree, isCgroupVanished } from '../../cgroups/index.ts';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { type EffectiveLimits, NO_CPU_LIMIT } from '../../sandbox/index.ts';
import { type ContainerStep, sameCpu } from '../model/index.ts';

/**
 * Compares the kernel with a caller's update that the runtime reports as done. Returns the container's limits where a plugin of the
 * runtime (NRI) has chosen others than the requested ones; undefined when the kernel has the requested ones, or the container has just
 * ended. Throws CGROUP_WRITE_FAILED when the kernel still has the old value of a limit: the pod limit must not follow such an update.
 */
export function verifyUpdate(
  { tree }: { readonly tree: CgroupTree },
  pod: PodDescription,
  cgroup: CgroupPath,
  asked: ContainerStep,
): EffectiveLimits | undefined {
  try {
    const { memoryMax: memory, cpuMax: cpu = NO_CPU_LIMIT } = tree.readLimitsNow(cgroup);
    const hasMemory = asked.memory === undefined || tree.holds(asked.memory.to, memory);
    // The runtime may choose another period.
    const hasCpu =
      asked.cpu === undefined || cpu.quota === asked.cpu.to.quota || tree.holdsCpu(cgroup, asked.cpu.to, cpu);
    if (!hasMemory && tree.holds(asked.memory.from, memory))
      throw unchanged(pod, asked.id, `${cgroup}/memory.max`, asked.memory.to, memory);
    if (!hasCpu && sameCpu(asked.cpu.from, cpu))
      throw unchanged(pod, asked.id, `${cgroup}/cpu.max`, asked.cpu.to.quota, cpu.quota);
    return hasMemory && hasCpu ? undefined : { memory, cpu };
  } catch (error) {
    if (isCgroupVanished(error)) return undefined;
    throw error;
  }
}

function unchanged(
  pod: PodDescription,
  container: string,
  file: string,
  asked: string | number,
  found: string | number,
): ShimError {
  const message = `${file}: the runtime accepted ${asked}, but the kernel still has ${found}`;
  const context = { pod: pod.sandboxId, container, file, asked: String(asked), found: String(found) };
  return new ShimError(Code.INTERNAL, Reason.CGROUP_WRITE_FAILED, message, context);
}
