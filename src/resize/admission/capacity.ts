import { availableParallelism, totalmem } from 'node:os';
import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import { type Limits, podCgroup, podName } from '../../sandbox/index.ts';
import type { DesiredPod } from '../model/index.ts';

/**
 * KEP-1287: a resize that the node can never fit is infeasible. Throws EXCEEDS_NODE when a limit is more than the node has, or
 * than a cgroup above the pod's allows. Applies to ResizePod only: kubelet has admitted its own requests, by rules which allow
 * limits (not requests) above the node's size.
 */
export function assertNodeHas(parts: { readonly tree: CgroupTree }, pod: PodDescription, desired: DesiredPod): void {
  const all: [string, Limits][] = [
    [`pod ${podName(pod)}`, desired.pod],
    ...[...desired.containers].map(([name, limits]): [string, Limits] => [`container ${name}`, limits]),
  ];
  const memory = memoryAbove(parts, pod);
  const cpus = availableParallelism();
  for (const [whose, limits] of all) {
    if (limits.memory !== undefined && limits.memory !== 'max' && limits.memory > memory.bytes)
      throw exceeds(pod, whose, 'memory.max', limits.memory, memory.bytes, memory.where);
    const { quota = 'max', period = 1 } = limits.cpu ?? {};
    if (quota !== 'max' && quota > cpus * period)
      throw exceeds(pod, whose, 'cpu.max', quota, cpus * period, `the node has ${cpus} CPUs`);
  }
}

/** Returns the minimum of the node's memory and the limits of the cgroups above the pod's. */
function memoryAbove(parts: { readonly tree: CgroupTree }, pod: PodDescription): { bytes: number; where: string } {
  let least = { bytes: totalmem(), where: 'the node has no more' };
  const ancestors = podCgroup(pod).split('/').slice(1, -1);
  for (let depth = ancestors.length; depth > 0; depth -= 1) {
    const cgroup = `/${ancestors.slice(0, depth).join('/')}`;
    const memoryMax = parts.tree.readMemoryMax(cgroup);
    if (memoryMax !== 'max' && memoryMax < least.bytes)
      least = { bytes: memoryMax, where: `cgroup ${cgroup} allows no more` };
  }
  return least;
}

function exceeds(
  pod: PodDescription,
  whose: string,
  file: string,
  asked: number,
  found: number,
  where: string,
): ShimError {
  const message = `${whose}: ${file} ${asked} is more than ${found}: ${where}`;
  const context = { pod: pod.metadata.uid, file, asked: String(asked), found: String(found) };
  return new ShimError(Code.FAILED_PRECONDITION, Reason.EXCEEDS_NODE, message, context);
}
