import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bytes, Code, type CpuShares, cpuShares, Reason, reportedShares, ShimError } from '../../core/index.ts';
import {
  type Backend,
  type ContainerDescription,
  ContainerState,
  isNotFound,
  type Messages,
  type PodDescription,
  SandboxState,
} from '../../runtime/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { DesiredPod, MemoryRequests } from '../plan/resize-request.ts';
import { type KnownLimits, type KnownValues, knownOf } from '../plan/value-changes.ts';
import type { ListedContainers } from '../pods/container-lists.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import { podName } from '../pods/names.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { namedCgroup, withExactQuota } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';

/** The containers of a pod, running or not, in the order of their creation. */
interface DescribedContainers {
  readonly all: readonly ContainerDescription[];
  readonly listed: ListedContainers;
}

/** Lists and describes the containers of a pod. Rejects when the backend cannot be asked. */
export async function describeContainers(registry: Registry, pod: PodDescription): Promise<DescribedContainers> {
  const describe = (ids: readonly string[]): Promise<(ContainerDescription | undefined)[]> =>
    Promise.all(ids.map((id) => registry.describeContainer(id)));
  const known = registry.containersOf(pod.sandboxId).map(({ containerId }) => containerId);
  // Listed concurrently: the registry does not know containers that were created without the shim, usually none.
  const [listed, described] = await Promise.all([registry.listContainers(pod), describe(known)]);
  const others = await describe(listed.map(({ id }) => id).filter((id) => !known.includes(id)));
  const byId = new Map(
    [...described, ...others].flatMap((container) =>
      container === undefined ? [] : [[container.containerId, container]],
    ),
  );
  // The backend lists containers in any order. The last container of a name is the current one.
  const inOrder = listed.toSorted((one, other) => Number(one.created_at - other.created_at));
  return { all: inOrder.flatMap(({ id }) => byId.get(id) ?? []), listed };
}

/** Throws POD_ENDED for a pod that has ended permanently: kubelet restarts none of its containers and drops resizes. */
export function assertNotEnded(pod: PodDescription, { hasEnded }: DeclaredPod): void {
  if (hasEnded !== true) return;
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.POD_ENDED,
    `pod ${podName(pod)}: it has ended (phase Succeeded or Failed), and none of its containers starts again`,
    { pod: pod.metadata.uid },
  );
}

/**
 * KEP-1287: only running containers are resized. Throws SANDBOX_ENDED for a pod whose sandbox has ended. None of its
 * containers runs again: kubelet creates all of them in another sandbox, and values that the runtime stores for the
 * ended containers have no effect. Throws UNKNOWN_POD if the sandbox was removed meanwhile. The backend is asked only
 * if no container runs.
 * @param waits whether the request is repeated later. If so, the backend is always asked: a container may still run for
 *   a short time after its sandbox has ended
 */
export async function assertSandboxRuns(
  backend: Backend,
  pod: PodDescription,
  containers: readonly Pick<ContainerDescription, 'state'>[],
  waits = false,
): Promise<void> {
  if (!waits && containers.some(({ state }) => state === ContainerState.CONTAINER_RUNNING)) return;
  const { sandboxId } = pod;
  const { status } = await sandboxStatus(backend, pod);
  if (status?.state !== SandboxState.SANDBOX_NOTREADY) return;
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.SANDBOX_ENDED,
    `pod ${podName(pod)}: its sandbox ${sandboxId} has ended, and its containers with it: kubelet creates another one, ` +
      'unless the pod has ended',
    { pod: pod.metadata.uid, found: sandboxId },
  );
}

/** Throws UNKNOWN_POD for a sandbox that was removed since the pod was looked up. */
async function sandboxStatus(backend: Backend, pod: PodDescription): Promise<Messages['PodSandboxStatusResponse']> {
  const { sandboxId } = pod;
  try {
    return await backend.runtime('PodSandboxStatus', { pod_sandbox_id: sandboxId });
  } catch (error) {
    if (!isNotFound(error)) throw error;
    const message = `pod ${podName(pod)}: its sandbox ${sandboxId} was removed`;
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, message, { pod: sandboxId }, { cause: error });
  }
}

/**
 * Throws NO_RUNNING_CONTAINER unless these containers run although they have no cgroup, as with Kata Containers: the
 * update reports that. For ended containers, kubelet creates new ones, even while a sandbox is being stopped, which
 * ends last. The runtime ignores values for a container that is being started. So stored values would have no effect.
 */
export async function assertRunning(
  { procRoot = '/proc' }: { readonly procRoot?: string },
  pod: PodDescription,
  withoutCgroup: readonly ContainerDescription[],
): Promise<void> {
  const waiting: string[] = [];
  for (const { name, state, pid } of withoutCgroup)
    if (state !== ContainerState.CONTAINER_RUNNING || !(await isThere(join(procRoot, String(pid))))) waiting.push(name);
  if (waiting.length > 0) throw notRunning(pod, waiting);
}

/**
 * Throws NO_RUNNING_CONTAINER for containers whose start is in progress: they are not reported as running yet, but have
 * a cgroup, or a client's StartContainer call is unanswered. They start with the previous values, which the runtime
 * reads before it creates the cgroup: until the start has ended, containerd either only stores an update or does not
 * answer it.
 */
export function assertNotStarting(pod: PodDescription, starting: readonly string[]): void {
  if (starting.length === 0) return;
  const verb = starting.length === 1 ? 'is' : 'are';
  throw noneRuns(pod, `${starting.join(', ')} ${verb} being started: repeat the request when the start has ended`);
}

/**
 * Returns the containers that run, or that kubelet may start again. KEP-1287: a container that has ended does not delay
 * the resize of those that run. The exit code is not enough: the declared restart policy determines what kubelet does
 * (kubelet pkg/kubelet/container/helpers.go, ShouldContainerBeRestarted).
 */
export const mayRunAgain = (
  { containers }: DeclaredPod,
  described: readonly ContainerDescription[],
): readonly ContainerDescription[] =>
  described.filter(({ containerId, state, exitCode }) => {
    const policy = containers.find(({ id }) => id === containerId)?.restartPolicy;
    return (
      state !== ContainerState.CONTAINER_EXITED || !(policy === 'Never' || (policy === 'OnFailure' && exitCode === 0))
    );
  });

/**
 * Throws NO_RUNNING_CONTAINER if one of these containers has ended, so that its new values have no effect. A backend
 * that cannot be asked does not make a completed resize fail.
 */
export async function assertStillRunning(
  registry: Registry,
  pod: PodDescription,
  containerIds: readonly string[],
): Promise<void> {
  const ended: string[] = [];
  for (const id of containerIds) {
    const container = await registry.describeContainer(id).catch(() => 'unknown' as const);
    if (container !== 'unknown' && container?.state !== ContainerState.CONTAINER_RUNNING)
      ended.push(container?.name ?? id);
  }
  if (ended.length > 0) throw notRunning(pod, ended);
}

function notRunning(pod: PodDescription, names: readonly string[]): ShimError {
  return noneRuns(
    pod,
    `${names.join(', ')} ${names.length === 1 ? 'does' : 'do'} not run: the resize waits for the next start`,
  );
}

/**
 * Throws NO_RUNNING_CONTAINER for declared containers that kubelet has not created yet: in a pod with init containers,
 * kubelet creates the others after these have ended.
 */
export function assertCreated(pod: PodDescription, uncreated: readonly string[], waits: boolean): void {
  if (uncreated.length === 0) return;
  const [verb, whose] = uncreated.length === 1 ? ['has', 'its'] : ['have', 'their'];
  const then = waits ? `: the resize waits for ${whose} start` : '';
  throw noneRuns(pod, `${uncreated.join(', ')} ${verb} not been created yet${then}`);
}

const noneRuns = (pod: PodDescription, why: string): ShimError =>
  new ShimError(Code.FAILED_PRECONDITION, Reason.NO_RUNNING_CONTAINER, `pod ${podName(pod)}: ${why}`, {
    pod: pod.metadata.uid,
  });

const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** Returns for each name the running container, otherwise the last one created. */
export function byName(containers: readonly ContainerDescription[]): ReadonlyMap<string, ContainerDescription> {
  const known = new Map<string, ContainerDescription>();
  for (const container of containers) {
    if (known.get(container.name)?.state !== ContainerState.CONTAINER_RUNNING) known.set(container.name, container);
  }
  return known;
}

type Described = ReadonlyMap<string, ContainerDescription>;
/** Returns the id of a container by its name. */
type ContainerId = (name: string) => string | undefined;

/** Returns the desired values with containers by id. Unknown names are omitted. */
export const desiredValues = (asked: DesiredPod, described: Described): KnownValues<VolumePolicy> =>
  valuesById(asked, (name) => described.get(name)?.containerId);

/** Returns the desired values for the history. A container that kubelet has not created is listed by its name. */
export const askedValues = (asked: DesiredPod, described: Described): KnownValues<VolumePolicy> =>
  valuesById(asked, (name) => described.get(name)?.containerId ?? name);

/** Returns the values of a pod before a resize, including the memory requests that earlier resizes have set. */
export const knownBefore = (
  { earlierMemoryRequests }: DesiredPod,
  described: Described,
  read: PodState,
): KnownValues<Bytes> =>
  withMemoryRequests(knownOf(read), earlierMemoryRequests, (name) => described.get(name)?.containerId ?? name);

function valuesById(
  { pod, containers, volumes, memoryRequests }: DesiredPod,
  idOf: ContainerId,
): KnownValues<VolumePolicy> {
  const byId = [...containers].flatMap(([name, limits]): [string, Limits][] => {
    const id = idOf(name);
    return id === undefined ? [] : [[id, limits]];
  });
  return withMemoryRequests({ pod, containers: new Map(byId), volumes }, memoryRequests, idOf);
}

function withMemoryRequests<Size>(
  { pod, containers, ...values }: KnownValues<Size>,
  requests: MemoryRequests | undefined,
  idOf: ContainerId,
): KnownValues<Size> {
  const all = new Map<string, KnownLimits>(containers);
  for (const [name, memoryRequest] of Object.entries(requests?.containers ?? {})) {
    const id = idOf(name);
    if (id !== undefined) all.set(id, { ...all.get(id), memoryRequest });
  }
  const memoryRequest = requests?.pod;
  return { ...values, pod: { ...pod, ...(memoryRequest !== undefined && { memoryRequest }) }, containers: all };
}

/** The runtime's stored shares by container id. The kernel has only a weight. */
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
