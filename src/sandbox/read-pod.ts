import {
  type CgroupPath,
  type CgroupTree,
  DEFAULT_CPU_PERIOD,
  containerIdOf,
  driverOf,
  isCgroupVanished,
  isSystemdUnit,
} from '../cgroups/index.ts';
import { Code, Reason, ShimError } from '../core/errors/index.ts';
import type { PodVolumes } from '../tmpfs/index.ts';
import type { PodDescription } from '../runtime/index.ts';
import { type CpuMax, bytes, microseconds } from '../core/quantities/index.ts';
import type { DeclaredPod } from './declared/index.ts';
import type { LiveContainer, MountedVolume, PodState, VolumeState } from './pod-state.ts';

/** No CPU limit: the value without the cpu controller, which has no cpu.max. */
export const NO_CPU_LIMIT: CpuMax = { quota: 'max', period: DEFAULT_CPU_PERIOD };

/** Returns the cgroup of a pod. Throws CGROUP_UNAVAILABLE when the pod has none of its own. */
export function podCgroup(pod: PodDescription): CgroupPath {
  const path = driverOf(pod.cgroupParent).podCgroup(pod.cgroupParent);
  // Without a parent, or with the root as parent, the pod has no cgroup of its own.
  if (path === undefined || path === '/') throw noPodCgroup(pod);
  return path;
}

/** Whether a pod has a cgroup of its own. Pods that crictl creates without a cgroup parent have none. */
export function hasPodCgroup(pod: PodDescription): boolean {
  const path = driverOf(pod.cgroupParent).podCgroup(pod.cgroupParent);
  return path !== undefined && path !== '/';
}

/**
 * Reads the live values of a pod. Its containers are those that have a cgroup below the pod's. With a declaration, a cgroup without
 * processes counts only if its container is declared: an earlier sandbox of the pod may have left it, and kubelet removes it later.
 * Throws CGROUP_UNAVAILABLE when the pod's own cgroup cannot be read, as on a node with cgroup v1 (KEP-6030: such a resize is rejected).
 */
export async function readPod(
  tree: CgroupTree,
  pod: PodDescription,
  volumes: readonly VolumeState[],
  declared?: DeclaredPod,
): Promise<PodState> {
  const cgroup = podCgroup(pod);
  const limits = await tree.readLimits(cgroup);
  const containers: LiveContainer[] = [];
  for (const name of tree.children(cgroup)) {
    const id = containerIdOf(name);
    // The sandbox's own container has no limits.
    if (id === undefined || id === pod.sandboxId) continue;
    if (hasEnded(tree, `${cgroup}/${name}`, id, declared)) continue;
    const container = await readContainer(tree, `${cgroup}/${name}`, id);
    if (container !== undefined) containers.push(container);
  }
  return {
    memory: limits.memoryMax,
    cpu: limits.cpuMax ?? NO_CPU_LIMIT,
    weight: limits.cpuWeight,
    ...burstIn(tree, cgroup),
    overhead: overheadOf(pod),
    containers,
    volumes,
    ...(declared && { declared }),
    ...(isSystemdUnit(cgroup) && { inPercents: true as const }),
  };
}

/** Whether a cgroup has no processes, and its container is not one that the pod declares. */
function hasEnded(tree: CgroupTree, cgroup: CgroupPath, id: string, declared: DeclaredPod | undefined): boolean {
  if (declared === undefined || declared.containers.some((one) => one.id === id)) return false;
  try {
    return !tree.isPopulated(cgroup);
  } catch (error) {
    if (isCgroupVanished(error)) return true;
    throw error;
  }
}

/** Returns the overhead with which a pod was created. */
export function overheadOf({ overhead }: PodDescription): PodState['overhead'] {
  return {
    memory: bytes(Math.max(overhead.memoryBytes, 0)),
    cpu: {
      quota: microseconds(Math.max(overhead.cpuQuotaMicroseconds, 0)),
      period: overhead.cpuPeriodMicroseconds > 0 ? microseconds(overhead.cpuPeriodMicroseconds) : DEFAULT_CPU_PERIOD,
    },
  };
}

/** Reads the limits of one container's cgroup. Undefined when the container has just ended. */
export async function readContainer(
  tree: CgroupTree,
  cgroup: CgroupPath,
  id: string,
): Promise<LiveContainer | undefined> {
  try {
    const { memoryMax, cpuMax } = await tree.readLimits(cgroup);
    return { id, memory: memoryMax, cpu: cpuMax ?? NO_CPU_LIMIT, ...burstIn(tree, cgroup) };
  } catch (error) {
    if (isCgroupVanished(error)) return undefined;
    throw error;
  }
}

function burstIn(tree: CgroupTree, cgroup: CgroupPath): Pick<LiveContainer, 'burst'> {
  const burst = tree.readBurst(cgroup) ?? 0;
  return burst === 0 ? {} : { burst };
}

/** Returns the pod's mounted memory-backed volumes, without those that are unmounted meanwhile. */
export function readVolumes(volumes: PodVolumes, pod: PodDescription): MountedVolume[] {
  return volumes.ofPod(pod.metadata.uid).flatMap((volume): MountedVolume[] => {
    try {
      return [{ name: volume.name, size: volumes.measure(volume).size, device: volume.device }];
    } catch (error) {
      if (error instanceof ShimError && error.reason === Reason.UNKNOWN_VOLUME) return [];
      throw error;
    }
  });
}

function noPodCgroup(pod: PodDescription): ShimError {
  const message = `pod ${pod.sandboxId} has no cgroup of its own (cgroup_parent ${JSON.stringify(pod.cgroupParent)})`;
  return new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, { pod: pod.sandboxId });
}
