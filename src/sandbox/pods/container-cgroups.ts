import {
  type CgroupPath,
  type CgroupTree,
  cgroupOfPid,
  containerCgroupIn,
  containerIdOf,
  driverOf,
  isCgroupVanished,
} from '../../cgroups/index.ts';
import { hasPodCgroup, podCgroup } from './read-pod.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import type { Registry } from './registry.ts';

/** What finds the cgroups of containers. */
export interface CgroupLookup {
  readonly registry: Registry;
  /** The cgroups of running containers that were found before, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** The proc file system: /proc except in tests. */
  readonly procRoot?: string;
}

/**
 * Returns the cgroup of a running container: from /proc, the most reliable source, otherwise by the rule of the cgroup driver.
 * Undefined when neither has it.
 */
export async function containerCgroup(
  container: ContainerDescription,
  pod: PodDescription,
  procRoot?: string,
): Promise<CgroupPath | undefined> {
  const path = container.pid === 0 ? undefined : await cgroupOfPid(container.pid, procRoot);
  const own = path === undefined ? undefined : containerCgroupIn(path, container.containerId);
  return own ?? driverOf(pod.cgroupParent).containerCgroup(pod.cgroupParent, container.containerId);
}

/** Returns the ids of the containers that have a cgroup in that of the pod. */
export function idsInCgroup(tree: Pick<CgroupTree, 'children'>, pod: PodDescription): readonly string[] {
  if (!hasPodCgroup(pod)) return [];
  try {
    return tree.children(podCgroup(pod)).flatMap((name) => {
      const id = containerIdOf(name);
      return id === undefined || id === pod.sandboxId ? [] : [id];
    });
  } catch (error) {
    if (isCgroupVanished(error)) return [];
    throw error;
  }
}

/** Returns the cgroup of a container, and stores it for later lookups: it does not change while the container runs. */
export async function locateCgroup(
  parts: CgroupLookup,
  container: ContainerDescription,
  pod: PodDescription,
): Promise<CgroupPath | undefined> {
  const cgroup = await containerCgroup(container, pod, parts.procRoot);
  if (cgroup !== undefined) parts.cgroups.set(container.containerId, cgroup);
  return cgroup;
}

/**
 * Returns the cgroup of a running container without a call to the backend: from memory, otherwise the one that the cgroup driver names
 * after the container, if it exists, which it stores. Undefined if the container or its pod is not known, or has no such cgroup. Throws
 * CGROUP_UNAVAILABLE for an invalid name.
 */
export function knownCgroup(
  parts: CgroupLookup & { readonly tree: Pick<CgroupTree, 'exists'> },
  containerId: string,
): CgroupPath | undefined {
  const stored = parts.cgroups.get(containerId);
  if (stored !== undefined) return stored;
  const container = parts.registry.container(containerId);
  const pod = container && parts.registry.knownPod(container.sandboxId);
  const named = pod && driverOf(pod.cgroupParent).containerCgroup(pod.cgroupParent, containerId);
  if (named === undefined || !parts.tree.exists(named)) return undefined;
  parts.cgroups.set(containerId, named);
  return named;
}

/**
 * Asks the backend for a container and returns its cgroup. Undefined when the backend does not know the container. Rejects when
 * the backend cannot be asked.
 */
export async function findCgroup(parts: CgroupLookup, containerId: string): Promise<CgroupPath | undefined> {
  const container = await parts.registry.describeContainer(containerId);
  const pod = container === undefined ? undefined : await parts.registry.pod(container.sandboxId);
  return container === undefined || pod === undefined ? undefined : locateCgroup(parts, container, pod);
}

/** Returns the cgroup of a container, from memory if it still exists. Undefined for a container that does not run. */
export async function runningCgroup(
  parts: CgroupLookup & { readonly tree: CgroupTree },
  pod: PodDescription,
  id: string,
): Promise<CgroupPath | undefined> {
  const known = parts.cgroups.get(id);
  // The cgroup goes when its container ends, and a restart is another container.
  if (known !== undefined && parts.tree.exists(known)) return known;
  const container = await parts.registry.describeContainer(id);
  return container?.state === ContainerState.RUNNING ? locateCgroup(parts, container, pod) : undefined;
}
