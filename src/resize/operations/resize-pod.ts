import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type Backend, type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { type CpuShares, cpuShares } from '../../core/quantities/index.ts';
import type { CgroupTree } from '../../cgroups/index.ts';
import type { MemoryVolumes, VolumePolicy } from '../../tmpfs/index.ts';
import { notifyRuntime } from './notify-runtime.ts';
import type { WritersParts } from '../history/index.ts';
import type { ResourceManagers } from '../../kubelet/index.ts';
import type { Log } from '../../observe/index.ts';
import {
  assertNoRestart,
  assertNotAssigned,
  assertQosClassStays,
  assertReclaimable,
  assertRequestsFit,
  assertResizable,
  assertWithinCgroups,
} from '../admission/index.ts';
import { type AdmitRequestsParts, admitRequests } from './admit-requests.ts';
import {
  type ContainerStep,
  type DesiredPod,
  type KnownValues,
  type PodTarget,
  type ResizeOptions,
  type ResizeOutcome,
  absolute,
  compareLimits,
  directionOf,
  knownOf,
  stateAfter,
} from '../model/index.ts';
import {
  type ContainerLimits,
  type DeclarePodParts,
  type Limits,
  NO_CPU_LIMIT,
  type PodState,
  type Registry,
  containerCgroup,
  containerSubject,
  hasPodCgroup,
  limitsByName,
  namedCgroup,
  podCgroup,
  podName,
  podSubject,
  podWeight,
  readDeclaredPod,
  readPod,
  readVolumes,
  withExactQuota,
} from '../../sandbox/index.ts';
import { type PerformParts, type RecoverParts, perform, planSteps, recoverPod } from '../execute/index.ts';
import { assertHasVolumes, observeVolumes } from '../volumes/index.ts';
import {
  derivedPodLimits,
  derivedPodShares,
  type DeriveSettings,
  desiredFields,
  memoryQosOf,
  storedStep,
  withStoredValues,
} from '../values/index.ts';

export interface ResizePodParts
  extends RecoverParts,
    PerformParts,
    WritersParts,
    DeclarePodParts,
    Omit<AdmitRequestsParts, 'tree' | 'kubelet' | 'specs'> {
  readonly registry: Registry;
  /** What kubelet's managers have assigned to containers. */
  readonly managers: ResourceManagers;
  /** Client for the shim's own calls. */
  readonly backend: Backend;
}

/** Implements {@link ResizePod}. */
export async function resizePod(
  parts: ResizePodParts,
  sandboxId: string,
  asked: DesiredPod,
  options: ResizeOptions,
): Promise<ResizeOutcome> {
  const { sandboxId: id } = await findPod(parts, sandboxId);
  const resize = async (): Promise<ResizeOutcome> => {
    await parts.journal.restored();
    // Under the lock: an earlier request may have changed the pod and its shares.
    const pod = await findPod(parts, id);
    await recoverPod(parts, pod);
    const desired = options.stillDesired?.() ?? asked;
    const prepared = await prepare(parts, pod, desired, options);
    const { state, target, stored } = prepared;
    if (options.dryRun) {
      const steps = planSteps(parts, pod, state, target, stored).map((step) => ({ step, at: 0, ms: 0 }));
      return { steps, before: state, after: stateAfter(state, target) };
    }
    const { deadline, onStep } = options;
    options.onAdmitted?.();
    const sizes = new Map([...desired.volumes].map(([name, policy]) => [name, { policy, annotated: false }]));
    const performed = perform(parts, pod, state, target, { stored, deadline, onStep, sizes });
    const steps = await orElse(performed, () => {
      if (prepared.dropRequests()) options.onRoomFreed?.();
    });
    await publishLimits(parts, pod, prepared);
    if (options.writer !== undefined) await parts.newest.applied(id, options.writer, desiredFields(desired));
    return { steps, before: state, after: await readAfter(parts, pod, stateAfter(state, target)) };
  };
  const { outcomes } = parts;
  return parts.lock.run(id, options.dryRun ? resize : () => outcomes.track(id, resize));
}

/** Calls `undo` if a promise rejects, and rejects as it does. */
async function orElse<Result>(promise: Promise<Result>, undo: () => void): Promise<Result> {
  try {
    return await promise;
  } catch (error) {
    undo();
    throw error;
  }
}

async function findPod(parts: { readonly registry: Registry }, sandboxId: string): Promise<PodDescription> {
  const pod = await parts.registry.pod(sandboxId);
  if (pod === undefined)
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod ${sandboxId}`, { pod: sandboxId });
  if (hasPodCgroup(pod)) return pod;
  const message = `pod ${podName(pod)} has no cgroup of its own`;
  throw new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, message, { pod: sandboxId });
}

interface Prepared {
  readonly state: PodState;
  readonly target: PodTarget;
  /** The updates of containers that do not run. */
  readonly stored: readonly ContainerStep[];
  /** The pod's new shares, if they change. */
  readonly shares: CpuShares | undefined;
  /** Drops the record of the pod's new requests: the resize has failed. Returns whether this frees room for other pods. */
  readonly dropRequests: () => boolean;
}

async function prepare(
  parts: ResizePodParts,
  pod: PodDescription,
  desired: DesiredPod,
  { dryRun }: Pick<ResizeOptions, 'dryRun'>,
): Promise<Prepared> {
  const { policies } = parts;
  const volumes = readVolumes(parts.volumes, pod);
  assertHasVolumes(pod, volumes, desired.volumes.keys());
  const all = await describeContainers(parts, pod);
  const containers = byName(all);
  const wanted = desiredValues(desired, containers);
  if (!dryRun) parts.outcomes.setDesired(pod.sandboxId, wanted);
  const read = await readDeclaredPod(parts, pod, volumes);
  const direction = directionOf({ ...wanted, volumes: absolute(desired.volumes) }, knownOf(read));
  if (!dryRun) parts.outcomes.setDirection(pod.sandboxId, direction);
  observeVolumes(parts, pod, volumes, read.memory);
  const exact = withShares(withExactQuotas(pod, read, all), sharesIn([...containers.values()]));
  const memoryQos = memoryQosOf(parts, pod, exact, desired, containers);
  const split = containerTargets(pod, containers, exact, desired, memoryQos.ofContainer);
  const { state, targets } = await withStoredValues(parts, pod, exact, split.targets, all, memoryQos.ofContainer);
  assertQosClassStays(pod, state, desired);
  assertNotAssigned(parts, pod, state, desired);
  assertNoRestart(pod, state, desired);
  assertWithinCgroups(parts, pod, state, desired);
  for (const target of targets) await assertContainerFits(parts, pod, containers, state, target);
  const derived = derivedPodShares(pod, state, targets);
  const shares = desired.pod.shares ?? derived?.then;
  const present = derived === undefined ? pod : { ...pod, cpuShares: derived.now };
  const weight = shares === undefined ? undefined : podWeight(present, state.weight, shares);
  const limits = { ...(await podLimits(parts, pod, state, targets, desired.pod)), ...(weight && { weight }) };
  const after = stateAfter(state, { ...limits, containers: targets, volumes: new Map() });
  assertRequestsFit(desired, after, containers);
  const sizes = policies.targets(
    pod.sandboxId,
    volumes,
    after.memory,
    limitsByName(parts, pod, after),
    desired.volumes,
  );
  const unified = memoryQos.ofPod(limits.memory);
  const target: PodTarget = { ...limits, unified, containers: targets, call: 'none', volumes: sizes };
  // Last: nothing may fail between the record and the transaction.
  const dropRequests = admitRequests(parts, pod, state, desired, { dryRun });
  return { state, target, stored: split.stored, shares, dropRequests };
}

async function describeContainers(
  parts: { readonly registry: Registry; readonly backend: Backend },
  pod: PodDescription,
): Promise<readonly ContainerDescription[]> {
  const { registry, backend } = parts;
  const describe = (ids: readonly string[]): Promise<(ContainerDescription | undefined)[]> =>
    Promise.all(ids.map((id) => registry.describeContainer(id)));
  const known = registry.containersOf(pod.sandboxId).map(({ containerId }) => containerId);
  // Listed concurrently: the registry does not know containers that were created without the shim. Usually there are none.
  const [{ containers }, described] = await Promise.all([
    backend.runtime('ListContainers', { filter: { pod_sandbox_id: pod.sandboxId } }),
    describe(known),
  ]);
  const others = await describe(containers.map(({ id }) => id).filter((id) => !known.includes(id)));
  const byId = new Map(
    [...described, ...others].flatMap((container) =>
      container === undefined ? [] : [[container.containerId, container]],
    ),
  );
  // In the backend's order: the last container of a name is the current one.
  return containers.flatMap(({ id }) => byId.get(id) ?? []);
}

/** Returns for each name the running container, otherwise the last one created. */
function byName(containers: readonly ContainerDescription[]): ReadonlyMap<string, ContainerDescription> {
  const known = new Map<string, ContainerDescription>();
  for (const container of containers) {
    if (known.get(container.name)?.state !== ContainerState.RUNNING) known.set(container.name, container);
  }
  return known;
}

/** Returns the desired values with containers by id. Unknown names are omitted. */
function desiredValues(
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

const sharesIn = (containers: readonly ContainerDescription[]): SharesById =>
  new Map(
    containers.map(({ containerId, resources }) => [containerId, cpuShares(Number(resources?.cpu_shares ?? 0n))]),
  );

function withExactQuotas(pod: PodDescription, state: PodState, all: readonly ContainerDescription[]): PodState {
  const stored = new Map(all.map(({ containerId, resources }) => [containerId, resources]));
  const containers = state.containers.map((container) =>
    withExactQuota(container, namedCgroup(pod, container.id), stored.get(container.id)),
  );
  return { ...state, containers };
}

function withShares(state: PodState, sharesOf: SharesById): PodState {
  return {
    ...state,
    containers: state.containers.map((container) => {
      const shares = sharesOf.get(container.id);
      return shares === undefined ? container : { ...container, shares };
    }),
  };
}

/** Reads the pod's state from the kernel, with the shares that the runtime has accepted. */
async function readAfter(
  parts: { readonly tree: CgroupTree; readonly volumes: MemoryVolumes },
  pod: PodDescription,
  wanted: PodState,
): Promise<PodState> {
  const read = await readPod(parts.tree, pod, readVolumes(parts.volumes, pod));
  return withShares(read, new Map(wanted.containers.map(({ id, shares }) => [id, shares])));
}

/**
 * Splits the desired limits into those of running containers and updates of the others. Throws UNKNOWN_CONTAINER, and as
 * {@link assertResizable}.
 */
function containerTargets(
  pod: PodDescription,
  containers: ReadonlyMap<string, ContainerDescription>,
  state: PodState,
  desired: DesiredPod,
  derive: DeriveSettings,
): { targets: ContainerLimits[]; stored: ContainerStep[] } {
  const targets: ContainerLimits[] = [];
  const stored: ContainerStep[] = [];
  // The kernel has no file for a memory request, but kubelet may have derived others from it.
  const requested = Object.keys(desired.memoryRequests?.containers ?? {}).map((name): [string, Limits] => [name, {}]);
  for (const [name, limits] of new Map([...requested, ...desired.containers])) {
    assertResizable(pod, state, name);
    const container = containers.get(name);
    if (container === undefined) {
      const message = `pod ${podName(pod)} has no container ${name}`;
      const where = { pod: pod.metadata.uid, container: name };
      throw new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER, message, where);
    }
    const id = container.containerId;
    if (state.containers.some((running) => running.id === id)) targets.push({ id, ...limits });
    else stored.push(...storedStep(container, limits, derive));
  }
  return { targets, stored };
}

/** Throws MEMORY_NOT_RECLAIMABLE. */
async function assertContainerFits(
  parts: { readonly tree: CgroupTree; readonly procRoot?: string },
  pod: PodDescription,
  containers: ReadonlyMap<string, ContainerDescription>,
  state: PodState,
  { id, memory }: ContainerLimits,
): Promise<void> {
  const now = state.containers.find((container) => container.id === id);
  const container = [...containers.values()].find(({ containerId }) => containerId === id);
  if (memory === undefined || now === undefined || container === undefined) return;
  if (compareLimits(memory, now.memory) >= 0) return;
  const cgroup = await containerCgroup(container, pod, parts.procRoot);
  if (cgroup === undefined) return;
  await assertReclaimable(parts.tree, containerSubject(container, pod), { cgroup, now: now.memory, wanted: memory });
}

/**
 * Returns the pod's limits: the desired ones, which throw MEMORY_NOT_RECLAIMABLE when usage blocks a decrease, otherwise those
 * derived from its containers, without a decrease that usage blocks.
 */
async function podLimits(
  parts: { readonly tree: CgroupTree; readonly log: Log },
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
  asked: Limits,
): Promise<Limits> {
  const { memory, cpu } = asked;
  // A desired limit is not derived from the containers.
  const free: PodState = {
    ...state,
    ...(memory !== undefined && { memory: 'max' }),
    ...(cpu !== undefined && { cpu: NO_CPU_LIMIT }),
  };
  const derived = await derivedPodLimits(parts, pod, free, targets);
  if (memory !== undefined) {
    await assertReclaimable(parts.tree, podSubject(pod), {
      cgroup: podCgroup(pod),
      now: state.memory,
      wanted: memory,
    });
  }
  return { ...derived, ...(memory !== undefined && { memory }), ...(cpu !== undefined && { cpu }) };
}

/** Stores the pod's new shares in the registry, and reports the new pod limits to the runtime. */
async function publishLimits(
  parts: { readonly registry: Registry; readonly backend: Backend; readonly log: Log },
  pod: PodDescription,
  { target, shares }: Prepared,
): Promise<void> {
  if (shares !== undefined) parts.registry.learnPod({ ...pod, cpuShares: shares });
  const { memory, cpu } = target;
  if (memory !== undefined || cpu !== undefined || shares !== undefined)
    await notifyRuntime(parts, pod, {
      ...(memory !== undefined && { memory }),
      ...(cpu !== undefined && { cpu }),
      ...(shares !== undefined && { shares }),
    });
}
