import {
  type ContainerDescription,
  ContainerState,
  type LinuxContainerResources,
  type Messages,
  type PodDescription,
} from '../../runtime/index.ts';
import { type CgroupPath, DEFAULT_CPU_PERIOD } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type CpuShares, type Limit, cpuShares } from '../../core/quantities/index.ts';
import { derivedPodLimits } from './derived-pod-limits.ts';
import { type GrowVolumesLaterParts, scheduleVolumeGrowth } from './grow-volumes-later.ts';
import { failOpen } from './fail-open.ts';
import { passThroughUpdate, restoreAndLog } from './pass-through-update.ts';
import { type AdmitRestartParts, raisePodLimit } from './raise-pod-limit.ts';
import {
  assertId,
  assertReclaimable,
  fieldsSet,
  invalid,
  parseLimits,
  touchesLimits,
  validateResources,
  withSubject,
} from '../admission/index.ts';
import { type PodTarget, directionOf, stateAfter } from '../model/index.ts';
import { boundedBy, foreseenWith, volumeChanges } from '../foresight/index.ts';
import {
  type FailOpen,
  type Limits,
  type LiveContainer,
  type PodState,
  type Registry,
  containerCgroup,
  containerSubject,
  hasPodCgroup,
  podSubject,
  readPod,
  readVolumes,
  storedLimits,
} from '../../sandbox/index.ts';
import { type OnHigh, lowerMemory, perform, reclaimBy, tryRecoverPod } from '../execute/index.ts';
import { meetVolumes } from '../volumes/index.ts';
import { containerChanges } from '../plan/index.ts';

export interface UpdateContainerParts extends GrowVolumesLaterParts, AdmitRestartParts {}

type Request = Messages['UpdateContainerResourcesRequest'];

/**
 * UpdateContainerResources: the runtime gets the request as it came, and around it the pod's limit and its volumes are
 * kept in order. What cannot be understood (no such pod, files that cannot be read) is forwarded as it came, and counted.
 *
 * @param forward calls the runtime, and gives its answer.
 * @param deadline the caller's, in milliseconds since the epoch; without one there is none.
 * @returns the runtime's answer.
 * Throws ShimError INVALID_VALUE, MEMORY_NOT_RECLAIMABLE or VOLUME_IN_USE before anything has changed; RECLAIM_TIMEOUT, and
 * what `forward` throws, after the pod is as it was.
 */
export async function updateContainer(
  context: UpdateContainerParts,
  request: Request,
  forward: () => Promise<Buffer>,
  deadline?: number,
): Promise<Buffer> {
  assertId('container_id', request.container_id);
  const resources = request.linux;
  const found = await findContainer(context, request.container_id);
  if (found === undefined) return forward();
  const { container, pod } = found;
  context.outcomes.screen(pod.sandboxId, () => validateRequest(found, request));
  // Without a field of its own the runtime sets anew what it has stored.
  if (resources === null || !touchesLimits(resources)) return passThroughUpdate(context, container, pod, forward);
  const slot = { name: container.containerId, sets: fieldsSet(request) };
  const update = async (): Promise<Buffer> => {
    await tryRecoverPod(context, pod);
    // Its cgroup is gone or not there yet: the runtime stores the values and does nothing else.
    if (container.state !== ContainerState.RUNNING) return forwardToStopped(context, container, pod, forward);
    const read = (): Promise<Prepared | undefined> => prepare(context, container, pod, resources);
    const prepared = await failOpen(context, container.containerId, read);
    return prepared === undefined ? forward() : resize(context, prepared, forward, deadline);
  };
  return context.lock.run(pod.sandboxId, () => context.outcomes.track(pod.sandboxId, update), slot);
}

/** Throws INVALID_VALUE. Of a container that the runtime does not know the runtime says so itself. */
function validateRequest({ container, pod }: Found, { linux, windows }: Request): void {
  if (linux === null) return;
  const { text, ids } = containerSubject(container, pod);
  withSubject(`${text} of ${podSubject(pod).text}`, ids, () => {
    if (windows !== null) throw invalid('windows', 'set', 'must not be set together with linux');
    validateResources(linux);
  });
}

/** A container that is made and not started starts with what is stored now: the pod's limit has to have room for that. */
async function forwardToStopped(
  context: Pick<
    UpdateContainerParts,
    | 'registry'
    | 'backend'
    | 'journal'
    | 'tree'
    | 'volumes'
    | 'policies'
    | 'outcomes'
    | 'calls'
    | 'cgroups'
    | 'reclaimTimeout'
    | 'log'
    | 'counters'
    | 'recent'
    | 'procRoot'
  >,
  container: ContainerDescription,
  pod: PodDescription,
  forward: () => Promise<Buffer>,
): Promise<Buffer> {
  const before = storedLimits(container.resources);
  const response = await forward();
  if (container.state === ContainerState.CREATED) {
    const stored = (await context.registry.describeContainer(container.containerId))?.resources;
    await raisePodLimit(context, pod, container.containerId, before, storedLimits(stored));
  }
  return response;
}

interface Found {
  readonly container: ContainerDescription;
  readonly pod: PodDescription;
}

async function findContainer(
  context: { readonly registry: Registry; readonly failOpen: FailOpen },
  id: string,
): Promise<Found | undefined> {
  try {
    const container = await context.registry.describeContainer(id);
    const pod = container === undefined ? undefined : await context.registry.pod(container.sandboxId);
    if (container !== undefined && pod !== undefined) return { container, pod };
    context.failOpen('unknown_pod', id);
  } catch (error) {
    // The backend cannot be asked: it will say so to the caller itself.
    context.failOpen('unknown_pod', id, error);
  }
  return undefined;
}

/** What is read before a plan is made, under the pod's lock. */
interface Prepared extends Found {
  readonly wanted: Limits;
  /** No rule goes by them; but what is taken back is taken back whole. */
  readonly shares: { readonly shares?: CpuShares };
  /** Where its cgroup lies, and its memory limit now. */
  readonly cgroup: CgroupPath;
  readonly memory: Limit<Bytes>;
  /** Undefined when the pod has no cgroup of its own, so nothing to keep in order. */
  readonly state: PodState | undefined;
}

async function prepare(
  context: Pick<UpdateContainerParts, 'journal' | 'tree' | 'volumes' | 'policies' | 'outcomes' | 'log' | 'procRoot'>,
  container: ContainerDescription,
  pod: PodDescription,
  resources: LinuxContainerResources,
): Promise<Prepared | undefined> {
  const { tree } = context;
  const cgroup = await containerCgroup(container, pod, context.procRoot);
  if (cgroup === undefined) return undefined;
  const limits = await tree.readLimits(cgroup);
  const current: CpuMax = limits.cpuMax ?? { quota: 'max', period: DEFAULT_CPU_PERIOD };
  const wanted = parseLimits(resources, current);
  const desired = { containers: new Map([[container.containerId, wanted]]) };
  context.outcomes.desire(pod.sandboxId, desired);
  const now = { containers: new Map([[container.containerId, { memory: limits.memoryMax, cpu: current }]]) };
  context.outcomes.leads(pod.sandboxId, directionOf(desired, now));
  if (wanted.memory !== undefined) {
    await assertReclaimable(tree, containerSubject(container, pod), {
      cgroup,
      now: limits.memoryMax,
      wanted: wanted.memory,
    });
  }
  const memory = limits.memoryMax;
  // As they were given: the runtime stores them so, and brings them within their bounds only for the kernel.
  const shares = resources.cpu_shares <= 0n ? {} : { shares: cpuShares(Number(resources.cpu_shares)) };
  if (!hasPodCgroup(pod)) return { container, pod, wanted, shares, cgroup, memory, state: undefined };
  const volumes = readVolumes(context.volumes, pod);
  const state = await readPod(tree, pod, volumes);
  meetVolumes(context, pod, volumes, state.memory);
  return { container, pod, wanted, shares, cgroup, memory, state };
}

async function resize(
  context: GrowVolumesLaterParts,
  prepared: Prepared,
  forward: () => Promise<Buffer>,
  deadline: number | undefined,
): Promise<Buffer> {
  const { container, pod, wanted, shares, cgroup, state } = prepared;
  const until = reclaimBy(context, deadline);
  const before = withShares(state, prepared);
  let response: Buffer = Buffer.alloc(0);
  const call = (onHigh?: OnHigh): Promise<void> => {
    const memory = { from: prepared.memory, to: wanted.memory ?? prepared.memory };
    const update = async (): Promise<void> => {
      response = await context.calls.run(container.containerId, () =>
        forwardOrRestore(context, pod, before, forward, onHigh),
      );
    };
    return lowerMemory(context, { ...containerSubject(container, pod), cgroup, memory }, until, update, onHigh);
  };
  const limitsById = { id: container.containerId, ...wanted };
  if (state === undefined) {
    await context.outcomes.admit(pod.sandboxId, { containers: new Map([[limitsById.id, wanted]]) }, () => call());
    return response;
  }
  const foreseen = foreseenWith(context, pod, state, limitsById);
  const limits = boundedBy(foreseen, state, await derivedPodLimits(context, pod, state, [limitsById]));
  const after = stateAfter(state, { ...limits, containers: [limitsById], volumes: new Map() });
  const { volumes, isSettled } = volumeChanges(context, pod, { state, after, foreseen });
  const target: PodTarget = { ...limits, call: 'container', volumes };
  const asked = before && containerChanges(before, { ...before, ...wanted, ...shares });
  await perform(context, pod, state, target, { asked, container: limitsById, call, until });
  scheduleVolumeGrowth(context, pod, isSettled);
  return response;
}

/** The container as it is, with the runtime's shares of it if those are asked for too. */
function withShares(state: PodState | undefined, { container, shares }: Prepared): LiveContainer | undefined {
  const now = state?.containers.find(({ id }) => id === container.containerId);
  const stored = container.resources?.cpu_shares ?? 0n;
  if (now === undefined || shares.shares === undefined || stored <= 0n) return now;
  return { ...now, shares: cpuShares(Number(stored)) };
}

/** The runtime's call. When it fails half-way, what it has written is taken back. */
async function forwardOrRestore(
  context: Pick<UpdateContainerParts, 'registry' | 'backend' | 'tree' | 'cgroups' | 'log' | 'counters' | 'procRoot'>,
  pod: PodDescription,
  before: LiveContainer | undefined,
  forward: () => Promise<Buffer>,
  onHigh: OnHigh | undefined,
): Promise<Buffer> {
  try {
    return await forward();
  } catch (error) {
    if (before !== undefined) await restoreAndLog(context, pod, before, 'the runtime failed half-way', onHigh);
    throw error;
  }
}
