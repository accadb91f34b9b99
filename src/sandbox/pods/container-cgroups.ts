import {
  type CgroupPath,
  type CgroupTree,
  cgroupOfPid,
  containerCgroupIn,
  containerIdOf,
  driverOf,
  isCgroupVanished,
} from '../../cgroups/index.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { hasPodCgroup, podCgroup } from './read-pod.ts';
import type { Registry } from './registry.ts';

/**
 * Returns the cgroup of a running container: from /proc, the most reliable source, otherwise by the rule of the cgroup
 * driver. Undefined when neither has it.
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

/** The cgroups of containers. A cgroup that was found is stored: it does not change while the container runs. */
export class ContainerCgroups {
  /** By container id. */
  readonly #stored = new Map<string, CgroupPath>();

  /** @param procRoot the proc file system: /proc, except in tests */
  constructor(
    private readonly registry: Registry,
    private readonly tree: Pick<CgroupTree, 'exists'>,
    private readonly procRoot?: string,
  ) {}

  /** Returns the cgroup of a container as {@link containerCgroup} does. */
  of(container: ContainerDescription, pod: PodDescription): Promise<CgroupPath | undefined> {
    return containerCgroup(container, pod, this.procRoot);
  }

  /** Returns the cgroup of a container, and stores it. */
  async locate(container: ContainerDescription, pod: PodDescription): Promise<CgroupPath | undefined> {
    const cgroup = await this.of(container, pod);
    if (cgroup !== undefined) this.#stored.set(container.containerId, cgroup);
    return cgroup;
  }

  /** Returns the stored cgroup of a container. It no longer exists once the container has ended. */
  stored(containerId: string): CgroupPath | undefined {
    return this.#stored.get(containerId);
  }

  /**
   * Returns the cgroup of a running container without a call to the backend: the stored one, otherwise the existing
   * cgroup that the cgroup driver names after the container, which is then stored. Undefined if the container or its
   * pod is not known, or has no such cgroup. Throws CGROUP_UNAVAILABLE for an invalid name.
   */
  known(containerId: string): CgroupPath | undefined {
    const stored = this.#stored.get(containerId);
    if (stored !== undefined) return stored;
    const container = this.registry.container(containerId);
    const pod = container && this.registry.knownPod(container.sandboxId);
    const named = pod && driverOf(pod.cgroupParent).containerCgroup(pod.cgroupParent, containerId);
    if (named === undefined || !this.tree.exists(named)) return undefined;
    this.#stored.set(containerId, named);
    return named;
  }

  /**
   * Asks the backend for a container and returns its cgroup. Undefined when the backend does not know the container.
   * Rejects when the backend cannot be asked.
   */
  async find(containerId: string): Promise<CgroupPath | undefined> {
    const container = await this.registry.describeContainer(containerId);
    const pod = container === undefined ? undefined : await this.registry.pod(container.sandboxId);
    return container === undefined || pod === undefined ? undefined : this.locate(container, pod);
  }

  /** Returns a container's cgroup, the stored one if it still exists. Undefined if it does not run. */
  async running(pod: PodDescription, id: string): Promise<CgroupPath | undefined> {
    const stored = this.#stored.get(id);
    // The cgroup is removed when its container ends, and a restart creates another container.
    if (stored !== undefined && this.tree.exists(stored)) return stored;
    const container = await this.registry.describeContainer(id);
    return container?.state === ContainerState.CONTAINER_RUNNING ? this.locate(container, pod) : undefined;
  }

  /** Removes a container that no longer exists. */
  forget(containerId: string): void {
    this.#stored.delete(containerId);
  }
}
