import { type CgroupPath, driverOf, isRoundedInUnit } from '../cgroups/index.ts';
import type { LinuxContainerResources, PodDescription } from '../runtime/index.ts';
import type { LiveContainer } from './pod-state.ts';
import { storedLimits } from './limits/index.ts';

/**
 * Returns the container with the CPU limit that the runtime has stored if the kernel's is the same in whole percents of a CPU: systemd
 * has written it then, at a reload or with another property of the unit. Restoring the rounded limit would make it permanent.
 */
export function withExactQuota<Container extends LiveContainer | undefined>(
  container: Container,
  cgroup: CgroupPath | undefined,
  resources: LinuxContainerResources | null | undefined,
): Container {
  const stored = storedLimits(resources)?.cpu;
  if (container === undefined || cgroup === undefined || stored === undefined) return container;
  return isRoundedInUnit(cgroup, stored, container.cpu) ? { ...container, cpu: stored } : container;
}

/** Returns the cgroup of a container by the rule of its pod's cgroup driver. */
export const namedCgroup = (pod: PodDescription, id: string): CgroupPath | undefined =>
  driverOf(pod.cgroupParent).containerCgroup(pod.cgroupParent, id);
