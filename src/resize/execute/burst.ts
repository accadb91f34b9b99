import { CPU_BURST, type CgroupPath, type CgroupTree } from '../../cgroups/index.ts';
import type { CpuMax } from '../../core/quantities/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import { namedCgroup, podCgroup } from '../../sandbox/index.ts';
import type { Step } from '../model/index.ts';
import { loweredBurst } from '../plan/index.ts';

type BurstStep = Extract<Step, { kind: 'burst' }>;

/** Returns the cgroup whose burst a step changes. Throws CGROUP_UNAVAILABLE if there is none. */
export function burstCgroup(pod: PodDescription, { id }: BurstStep): CgroupPath {
  return (id === undefined ? undefined : namedCgroup(pod, id)) ?? podCgroup(pod);
}

/** Sets a burst, or the largest one that the present quota allows: it may have changed since the step was planned. */
export async function writeBurst(tree: CgroupTree, pod: PodDescription, step: BurstStep): Promise<void> {
  const cgroup = burstCgroup(pod, step);
  const { cpuMax } = tree.readLimitsNow(cgroup);
  const to = loweredBurst(step.to, cpuMax) ?? step.to;
  await tree.write(cgroup, { file: 'unified', key: CPU_BURST, value: String(to) });
}

/** Lowers a burst that the kernel does not have with this quota: another process may have raised it since the plan was made. */
export async function fitBurst(tree: CgroupTree, cgroup: CgroupPath, cpu: CpuMax): Promise<void> {
  const burst = tree.readBurst(cgroup);
  const to = burst === undefined ? undefined : loweredBurst(burst, cpu);
  if (to !== undefined) await tree.write(cgroup, { file: 'unified', key: CPU_BURST, value: String(to) });
}
