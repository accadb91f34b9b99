import { type Backend, type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { type CpuShares, cpuShares, reportedShares } from '../../core/quantities/index.ts';
import type { DesiredPod, KnownValues } from '../model/index.ts';
import {
  type Limits,
  type ListedContainers,
  type PodState,
  type Registry,
  listContainers,
  namedCgroup,
  withExactQuota,
} from '../../sandbox/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';

/** The containers of a pod, running or not, in the backend's order. */
interface PodContainers {
  readonly all: readonly ContainerDescription[];
  readonly listed: ListedContainers;
}

/** Lists and describes the containers of a pod. Rejects when the backend cannot be asked. */
export async function describeContainers(
  parts: { readonly registry: Registry; readonly backend: Backend },
  pod: PodDescription,
): Promise<PodContainers> {
  const { registry } = parts;
  const describe = (ids: readonly string[]): Promise<(ContainerDescription | undefined)[]> =>
    Promise.all(ids.map((id) => registry.describeContainer(id)));
  const known = registry.containersOf(pod.sandboxId).map(({ containerId }) => containerId);
  // Listed concurrently: the registry does not know containers that were created without the shim. Usually there are none.
  const [listed, described] = await Promise.all([listContainers(parts, pod), describe(known)]);
  const others = await describe(listed.map(({ id }) => id).filter((id) => !known.includes(id)));
  const byId = new Map(
    [...described, ...others].flatMap((container) =>
      container === undefined ? [] : [[container.containerId, container]],
    ),
  );
  // In the backend's order: the last container of a name is the current one.
  return { all: listed.flatMap(({ id }) => byId.get(id) ?? []), listed };
}

/** Returns for each name the running container, otherwise the last one created. */
export function byName(containers: readonly ContainerDescription[]): ReadonlyMap<string, ContainerDescription> {
  const known = new Map<string, ContainerDescription>();
  for (const container of containers) {
    if (known.get(container.name)?.state !== ContainerState.RUNNING) known.set(container.name, container);
  }
  return known;
}

/** Returns the desired values with containers by id. Unknown names are omitted. */
export function desiredValues(
  { pod, containers, volumes }: DesiredPod,
  described: ReadonlyMap<string, ContainerDescription>,
): KnownValues<VolumePolicy> {
  const byId = [...containers].flatMap(([name, limits]): [string, Limits][] => {
    const id = described.get(name)?.containerId;
    return id === undefined ? [] : [[id, limits]];
  });
  return { pod, containers: new Map(byId), volumes };
}

/** Shares by container id, as the runtime stores them: the kernel has only a weight. */
type SharesById = ReadonlyMap<string, CpuShares | undefined>;

/** Returns the shares that the runtime stores. */
export const sharesIn = (containers: readonly ContainerDescription[]): SharesById =>
  new Map(
    containers.map(({ containerId, resources }) => [
      containerId,
      reportedShares(resources?.cpu_shares ?? 0n) ?? cpuShares(0),
    ]),
  );

/** Returns the state with the quotas that the runtime stores where the kernel's are rounded. */
export function withExactQuotas(pod: PodDescription, state: PodState, all: readonly ContainerDescription[]): PodState {
  const stored = new Map(all.map(({ containerId, resources }) => [containerId, resources]));
  const containers = state.containers.map((container) =>
    withExactQuota(container, namedCgroup(pod, container.id), stored.get(container.id)),
  );
  return { ...state, containers };
}

/** Returns the state with these shares. */
export function withShares(state: PodState, sharesOf: SharesById): PodState {
  return {
    ...state,
    containers: state.containers.map((container) => {
      const shares = sharesOf.get(container.id);
      return shares === undefined ? container : { ...container, shares };
    }),
  };
}
