import {
  type CallOptions,
  type ContainerDescription,
  ContainerState,
  type PodDescription,
} from '../../runtime/index.ts';
import type { ListedContainers, Registry } from '../../sandbox/index.ts';

/** The containers of a pod as the backend lists and describes them. */
export interface CurrentContainers {
  readonly listed: ListedContainers;
  /** By id: those that have not ended, as far as the backend describes them. */
  readonly described: ReadonlyMap<string, ContainerDescription>;
}

interface ContainerSources {
  readonly registry: Registry;
}

/**
 * Lists and describes the containers of a pod. Ended ones are not described: containers do not start twice. Rejects when the backend
 * cannot be asked.
 * @param listed the pod's containers from a list of all pods. If a container was created, removed, started or ended since, the pod's
 * containers are listed again
 */
export async function currentContainers(
  sources: ContainerSources,
  pod: PodDescription,
  listed?: ListedContainers,
  options?: CallOptions,
): Promise<CurrentContainers> {
  if (listed !== undefined && areKnown(sources.registry, pod, listed)) {
    const current = await describeListed(sources, listed, options);
    if (isUnchanged(current)) return current;
  }
  return describeListed(sources, await sources.registry.listContainers(pod, options), options);
}

/** Whether the listed containers are those that the registry knows of the pod: it learns which ones are created and removed. */
function areKnown(registry: Registry, { sandboxId }: PodDescription, listed: ListedContainers): boolean {
  const known = new Set(registry.containersOf(sandboxId).map(({ containerId }) => containerId));
  return known.size === listed.length && listed.every(({ id }) => known.has(id));
}

async function describeListed(
  { registry }: ContainerSources,
  listed: ListedContainers,
  options: CallOptions | undefined,
): Promise<CurrentContainers> {
  const described = new Map<string, ContainerDescription>();
  for (const { id } of listed.filter(hasNotEnded)) {
    const container = await registry.describeContainer(id, options);
    if (container !== undefined) described.set(id, container);
  }
  return { listed, described };
}

const isUnchanged = ({ listed, described }: CurrentContainers): boolean =>
  listed.filter(hasNotEnded).every(({ id, state }) => described.get(id)?.state === state);

const hasNotEnded = ({ state }: ListedContainers[number]): boolean => state !== ContainerState.EXITED;
