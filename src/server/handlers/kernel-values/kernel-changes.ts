import { ContainerState, type ReportedResources, type ReportedStatus } from '../../../runtime/index.ts';
import type { CgroupPath, CgroupTree } from '../../../cgroups/index.ts';
import { type FailOpen, type Registry, findCgroup, kernelResources, knownCgroup } from '../../../sandbox/index.ts';
import type { MaybePromise } from '../../proxy/index.ts';

export interface KernelChangesParts {
  readonly registry: Registry;
  readonly tree: CgroupTree;
  /** The cgroups of running containers, by container id. */
  readonly cgroups: Map<string, CgroupPath>;
  /** The proc file system. Default /proc; tests set another path. */
  readonly procRoot?: string;
  /** Counts calls that are forwarded unchanged because of an error, and logs each id and reason once. */
  readonly failOpen: FailOpen;
}

/**
 * Returns the resources in which the kernel differs from a reported container status. Undefined if the two agree, or
 * the container does not run. Rejects if the backend cannot be asked for the container's cgroup.
 * @param unreadable called if the container's cgroup cannot be read: the runtime's own values are sent then
 */
export function kernelChanges(
  context: KernelChangesParts,
  { id, state, resources }: ReportedStatus,
  unreadable: (error: unknown) => void,
): MaybePromise<Partial<ReportedResources> | undefined> {
  if (state !== ContainerState.RUNNING) return undefined;
  const changesIn = (cgroup: CgroupPath | undefined): Partial<ReportedResources> | undefined => {
    if (cgroup === undefined) return undefined;
    try {
      return kernelResources(context, cgroup, resources);
    } catch (error) {
      unreadable(error);
      return undefined;
    }
  };
  try {
    // kubelet asks for each container that it has started, and the backend takes long for the verbose status of a container.
    const known = knownCgroup(context, id);
    return known === undefined ? findCgroup(context, id).then(changesIn) : changesIn(known);
  } catch (error) {
    unreadable(error);
    return undefined;
  }
}
