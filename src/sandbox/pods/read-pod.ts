import {
  type CgroupPath,
  type CgroupTree,
  containerIdOf,
  DEFAULT_CPU_PERIOD,
  driverOf,
  formulasOf,
  isCgroupVanished,
  isRoundedInUnit,
  isSystemdUnit,
  weightOfShares,
} from '../../cgroups/index.ts';
import {
  bytes,
  Code,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  microseconds,
  Reason,
  ShimError,
} from '../../core/index.ts';
import type { LinuxContainerResources, PodDescription } from '../../runtime/index.ts';
import type { PodVolumes } from '../../tmpfs/index.ts';
import type { ListedContainers } from './container-lists.ts';
import { type DeclarationSources, declarePod } from './declare-pod.ts';
import type { DeclaredPod } from './declared-pod.ts';
import type { LiveContainer, MountedVolume, PodState, VolumeState } from './pod-state.ts';
import { storedLimits } from './stored-limits.ts';

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
 * Reads the live values of a pod. Its containers are those that have a cgroup below the pod's. With a declaration, a
 * cgroup without processes counts only if its container is declared: an earlier sandbox of the pod may have left it,
 * and kubelet removes it later. Throws CGROUP_UNAVAILABLE when the pod's own cgroup cannot be read, as on a node with
 * cgroup v1 (KEP-6030: such a resize is rejected).
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
    const container = readContainer(tree, `${cgroup}/${name}`, id);
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
export function readContainer(tree: CgroupTree, cgroup: CgroupPath, id: string): LiveContainer | undefined {
  try {
    const memory = tree.readMemoryMax(cgroup);
    return { id, memory, cpu: tree.readCpuMax(cgroup) ?? NO_CPU_LIMIT, ...burstIn(tree, cgroup) };
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

/**
 * Reads the live values of a pod, and what it declares: the rules of a resize hold for all its containers. Throws as
 * {@link readPod}. Rejects when the backend cannot be asked.
 * @param listed the pod's containers, if the caller has just listed them
 */
export async function readDeclaredPod(
  sources: DeclarationSources & { readonly tree: CgroupTree },
  pod: PodDescription,
  volumes: readonly VolumeState[],
  listed?: ListedContainers,
): Promise<PodState> {
  const declared = await declarePod(sources, pod, listed);
  return readPod(sources.tree, pod, volumes, declared);
}

/**
 * Returns the container with the CPU limit that the runtime has stored if the kernel's limit is the stored one rounded
 * to whole percents of a CPU: systemd then wrote it at a reload or with another property of the unit. Restoring the
 * rounded limit would make it permanent.
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

/**
 * Returns the weight of a pod's cgroup for these shares, by the formula that kubelet used for this pod. The pod's live
 * weight and its shares at creation show the formula; otherwise it is the old one, which kubelet uses for pods at least
 * up to 1.37 (kubelet pkg/kubelet/cm/cgroup_manager_linux.go, getCPUWeight). Undefined without the cpu controller.
 */
export function podWeight(pod: PodDescription, live: CpuWeight | undefined, shares: CpuShares): CpuWeight | undefined {
  if (live === undefined) return undefined;
  const known = pod.cpuShares === undefined ? [] : formulasOf(live, pod.cpuShares);
  return weightOfShares(shares, known.length === 1 && known[0] === 'new' ? 'new' : 'old');
}
