import { type CgroupPath, type CgroupTree, DEFAULT_CPU_PERIOD, type SwapLimits } from '../../cgroups/index.ts';
import { type Bytes, type CpuMax, type CpuShares, cpuShares, invalidValue, type Limit } from '../../core/index.ts';
import {
  type ContainerDescription,
  ContainerState,
  isNotServing,
  type LinuxContainerResources,
  type Messages,
  type PodDescription,
} from '../../runtime/index.ts';
import { assertReclaimable } from '../admission/memory-in-use.ts';
import { fieldsSet, parseLimits, touchesLimits } from '../admission/parse-limits.ts';
import { assertId, validateResources, withSubject } from '../admission/validate.ts';
import { boundByPending, volumeChanges } from '../foresight/pending-kubelet-resize.ts';
import { criRequester, type Requester } from '../history/history-entry.ts';
import { criFields } from '../history/newest-values.ts';
import type { Node } from '../node.ts';
import { lateError } from '../plan/failures.ts';
import { type PodTarget, type Step, stateAfter } from '../plan/step.ts';
import { containerChanges } from '../plan/steps.ts';
import type { KnownContainer } from '../pods/container-lists.ts';
import { readOrFailOpen } from '../pods/fail-open.ts';
import { containerSubject, podSubject } from '../pods/names.ts';
import { identityOf, lockKeyOf } from '../pods/pod-identity.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, readDeclaredPod, readVolumes, withExactQuota } from '../pods/read-pod.ts';
import { storedLimits } from '../pods/stored-limits.ts';
import type { CallersUpdate } from '../transaction/actions.ts';
import { lowerMemory, type MemoryChange, type OnHigh, reclaimBy, turnBy } from '../transaction/lower-memory.ts';
import { tryRecoverPod } from '../transaction/recover.ts';
import { assertInTime, Transaction } from '../transaction/transaction.ts';
import { derivedPodLimits } from '../values/derived-values.ts';
import { otherValues, swapAfterUpdate } from '../values/written-along.ts';
import { observeVolumes } from '../volumes/volume-tracking.ts';
import {
  type Forwarded,
  type ForwardedUpdate,
  followKernel,
  forwardUpdate,
  passThroughUpdate,
} from './forward-update.ts';
import { scheduleVolumeGrowth } from './pod-volumes.ts';
import { preparations } from './prepare-resize.ts';
import { raisePodLimit } from './raise-pod-limit.ts';

type Request = Messages['UpdateContainerResourcesRequest'];

/** The caller of a CRI call. */
export interface CallerOf {
  /** In milliseconds by steadyNow; undefined without one. */
  readonly deadline?: number | undefined;
  /** Default: a CRI client without known process. */
  readonly requester?: Requester;
}

interface Found {
  readonly known: KnownContainer;
  readonly pod: PodDescription;
}

/** The data read under the pod's lock, before a plan is made. */
interface Read {
  readonly container: ContainerDescription;
  readonly pod: PodDescription;
  readonly wanted: Limits;
  readonly resources: LinuxContainerResources;
  /** No ordering rule uses shares, but a rollback restores them. */
  readonly shares: { readonly shares?: CpuShares };
  /** The container's cgroup, and its present memory limit. */
  readonly cgroup: CgroupPath;
  readonly memory: Limit<Bytes>;
  /** The swap limit that the update lowers. */
  readonly swapAfter: SwapLimits | undefined;
  /** Undefined if the pod has no cgroup of its own: no ordering rule applies then. */
  readonly state: PodState | undefined;
}

/** An update of a running container that is ready to be applied. */
interface Update {
  readonly wanted: Limits;
  readonly memory: MemoryChange;
  readonly update: ForwardedUpdate;
  /** Until when memory may be reclaimed, in milliseconds by steadyNow. */
  readonly until: number;
}

/** The prepared update of a container, alone or together with its pod. */
type Prepared =
  | { readonly kind: 'stopped'; readonly container: ContainerDescription }
  | ({ readonly kind: 'alone' } & Update)
  | ({ readonly kind: 'in pod' } & Update & Begun);

/** The effect of a container update on its pod. */
interface Begun {
  readonly transaction: Transaction;
  /** The pod before the update. */
  readonly state: PodState;
  /** The pod limits for the requested values. */
  readonly limits: Limits;
  /** Bounds the pod limits derived from these limits of the container. */
  readonly bound: (derived: Limits, container: ContainerLimits) => Limits;
  /** Whether no more calls that affect the volumes are expected. */
  readonly isFinal: boolean;
}

/**
 * UpdateContainerResources: forwards the request unchanged, and adapts the pod limit and the volumes before and after
 * it (KEP-1287, KEP-6030). A request for a pod that is unknown or unreadable is forwarded unchanged and counted. A
 * request that sets neither limits nor shares, such as a cpuset, does not wait for the pod's lock.
 *
 * @param forward calls the runtime and returns its answer
 * @param caller its deadline, in milliseconds by steadyNow, and its identity for the history
 * @returns the runtime's answer. Throws ShimError INVALID_VALUE, DEADLINE, MEMORY_NOT_RECLAIMABLE or VOLUME_IN_USE
 *   before anything changes. Throws RECLAIM_TIMEOUT, and what `forward` throws, after the rollback.
 */
export async function updateContainer(
  node: Node,
  request: Request,
  forward: () => Promise<Buffer>,
  { deadline = Infinity, requester = criRequester(undefined) }: CallerOf = {},
): Promise<Buffer> {
  assertId('container_id', request.container_id);
  const resources = request.linux;
  const found = await findContainer(node, request.container_id);
  if (found === undefined) return forward();
  const { known, pod } = found;
  const { containerId, name } = known;
  const report = node.history.request(identityOf(pod), requester);
  node.outcomes.check(pod.sandboxId, () => validateRequest(found, request), report);
  // Without a limit in the request, the runtime writes its stored limits again.
  const passThrough = (): Promise<Buffer> =>
    passThroughUpdate(node, known, pod, resources, forward, { report, deadline });
  if (resources === null || criFields(name, resources).length === 0) return passThrough();
  const replaced = (): void => {
    const wanted = parseLimits(resources, { quota: 'max', period: DEFAULT_CPU_PERIOD });
    report.asks({ containers: new Map([[containerId, wanted]]) }, {});
    report.superseded(`a newer update of container ${name} has replaced it, and its outcome is that of both`);
  };
  const slot = { name: containerId, sets: fieldsSet(request), replaced };
  const writer = { arrival: node.newest.arrival(), text: `an update of container ${name}` };
  const setsLimits = touchesLimits(resources);
  const update = async (): Promise<Buffer> => {
    // The call may have waited for the lock.
    assertInTime(pod, deadline, writer.text);
    await tryRecoverPod(node, pod);
    const response = setsLimits ? await resize(node, found, resources, forward, deadline) : await passThrough();
    await node.newest.applied(pod.sandboxId, writer, criFields(name, resources));
    return response;
  };
  const tracked = (): Promise<Buffer> => node.outcomes.track(pod.sandboxId, update, report);
  return node.lock.run(lockKeyOf(pod), setsLimits ? tracked : update, slot);
}

/**
 * Updates a container whose pod's lock is held. Its state is read only now, because it may have started or ended while
 * the call waited. The order is that of KEP-1287: raised pod limits, the runtime's call (once usage is below a lower
 * memory limit), and the rest.
 */
async function resize(
  node: Node,
  { known, pod }: Found,
  resources: LinuxContainerResources,
  forward: () => Promise<Buffer>,
  deadline: number,
): Promise<Buffer> {
  const prepared = await preparations.run(() => prepareAndBegin(node, known, pod, resources, deadline));
  if (prepared === undefined) return forward();
  if (prepared.kind === 'stopped') return forwardToStopped(node, prepared.container, pod, forward);
  const { wanted, memory, update, until } = prepared;
  const callRuntime = (onHigh?: OnHigh): Promise<Forwarded> =>
    lowerMemory(node, memory, until, () => forwardUpdate(node, pod, update, forward, onHigh), onHigh);
  if (prepared.kind === 'alone') {
    // Not journalled, because no pod limit changes.
    const values = { containers: new Map([[known.containerId, wanted]]) };
    const { response } = await node.outcomes.admit(pod.sandboxId, values, () => callRuntime());
    return response;
  }
  const { state, limits, bound } = prepared;
  const { response, found } = await prepared.transaction.run(async (steps) => {
    await steps.apply();
    const forwarded = await steps.call(callRuntime);
    await steps.applyRest((step) => refusalFor(step, forwarded));
    return forwarded;
  });
  if (found !== undefined) {
    const inKernel = { id: known.containerId, ...wanted, ...found };
    const planned = { before: state, planned: limits, bound: (now: Limits) => bound(now, inKernel) };
    await followKernel(node, pod, planned, [inKernel]);
  }
  scheduleVolumeGrowth(node, pod, prepared.isFinal);
  return response;
}

/** Reads the container and its pod, plans the update and journals it. Undefined if they cannot be read. */
async function prepareAndBegin(
  node: Node,
  { containerId }: KnownContainer,
  pod: PodDescription,
  resources: LinuxContainerResources,
  deadline: number,
): Promise<Prepared | undefined> {
  const { failOpen, registry } = node;
  const container = await readOrFailOpen(failOpen, containerId, () => registry.describeContainer(containerId));
  if (container === undefined) return undefined;
  // The container has no cgroup (not yet, or no longer): the runtime only stores the values.
  if (container.state !== ContainerState.CONTAINER_RUNNING) return { kind: 'stopped', container };
  const found = await readOrFailOpen(failOpen, containerId, () => read(node, container, pod, resources));
  if (found === undefined) return undefined;
  const { wanted, cgroup, swapAfter } = found;
  const until = reclaimBy(node.reclaimTimeout, deadline);
  const turn = {
    calls: node.calls,
    id: containerId,
    until: turnBy(node.reclaimTimeout, deadline),
    late: () => lateError(pod, `an update of container ${container.name}`),
  };
  const lowered = { from: found.memory, to: wanted.memory ?? found.memory };
  const memory = { ...containerSubject(container, pod), cgroup, memory: lowered, swapAfter, turn };
  const { before, asked } = changesOf(node.tree, found);
  const update = { cgroup, before, changes: asked?.changes, isRecovered: true };
  const common = { wanted, memory, update, until };
  if (found.state === undefined) return { kind: 'alone', ...common };
  return { kind: 'in pod', ...common, ...(await begin(node, found, found.state, asked, until)) };
}

async function read(
  node: Node,
  container: ContainerDescription,
  pod: PodDescription,
  resources: LinuxContainerResources,
): Promise<Read | undefined> {
  const { tree } = node;
  const cgroup = await node.cgroups.of(container, pod);
  if (cgroup === undefined) return undefined;
  const limits = await tree.readLimits(cgroup);
  const current: CpuMax = limits.cpuMax ?? { quota: 'max', period: DEFAULT_CPU_PERIOD };
  const wanted = parseLimits(resources, current);
  const desired = { containers: new Map([[container.containerId, wanted]]) };
  node.outcomes.setDesired(pod.sandboxId, desired);
  const now = { containers: new Map([[container.containerId, { memory: limits.memoryMax, cpu: current }]]) };
  node.outcomes.asks(pod.sandboxId, desired, now);
  const memory = limits.memoryMax;
  const swapAfter = swapAfterUpdate(tree, cgroup, container.resources, resources, wanted.memory ?? memory);
  if (wanted.memory !== undefined) {
    const change = { cgroup, now: memory, wanted: wanted.memory, swapAfter };
    await assertReclaimable(tree, containerSubject(container, pod), change);
  }
  // Unclamped, as the runtime stores them: it clamps shares only for the kernel.
  const shares = resources.cpu_shares <= 0n ? {} : { shares: cpuShares(Number(resources.cpu_shares)) };
  const found = { container, pod, wanted, resources, shares, cgroup, memory, swapAfter };
  if (!hasPodCgroup(pod)) return { ...found, state: undefined };
  const volumes = readVolumes(node.volumes, pod);
  const state = await readDeclaredPod(node, pod, volumes);
  observeVolumes(node, pod, volumes, state.memory);
  return { ...found, state };
}

/** Plans the pod limits and volumes for the update (KEP-1287, KEP-6030), and journals them. */
async function begin(
  node: Node,
  { container, pod, wanted, swapAfter }: Read,
  state: PodState,
  asked: CallersUpdate | undefined,
  until: number,
): Promise<Begun> {
  const limitsById = { id: container.containerId, ...wanted };
  const pending = node.pending.ofContainerUpdate(pod, state, limitsById);
  const needsRoom = node.journal.unanswered.of(pod.sandboxId).length > 0;
  const bound = (derived: Limits, of: ContainerLimits): Limits =>
    boundByPending(pending, state, derived, { asked: of, needsRoom });
  const limits = bound(await derivedPodLimits(node, pod, state, [limitsById], { swapAfter }), limitsById);
  const after = stateAfter(state, { ...limits, containers: [limitsById], volumes: new Map() });
  const { volumes, isFinal } = volumeChanges(node, pod, { state, after, pending });
  const target: PodTarget = { ...limits, call: 'container', asked: limitsById, volumes };
  return {
    transaction: await Transaction.begin(node, pod, state, target, { asked, until }),
    state,
    limits,
    bound,
    isFinal,
  };
}

/** Throws INVALID_VALUE for an invalid request. The runtime itself reports an unknown container. */
function validateRequest({ known, pod }: Found, { linux, windows }: Request): void {
  if (linux === null) return;
  const { text, ids } = containerSubject(known, pod);
  withSubject(`${text} of ${podSubject(pod).text}`, ids, () => {
    if (windows !== null) throw invalidValue('windows', 'set', 'must not be set together with linux');
    validateResources(linux);
  });
}

/**
 * Forwards an update of a container that does not run. A created container starts with the stored limits, so the pod
 * limit is raised for them (KEP-1287).
 */
async function forwardToStopped(
  node: Node,
  container: ContainerDescription,
  pod: PodDescription,
  forward: () => Promise<Buffer>,
): Promise<Buffer> {
  const before = storedLimits(container.resources);
  const response = await forward();
  if (container.state === ContainerState.CONTAINER_CREATED) {
    const after = storedLimits((await node.registry.describeContainer(container.containerId))?.resources);
    const valuesOf = (limits = before) => ({ containers: new Map(limits && [[container.containerId, limits]]) });
    node.outcomes.asks(pod.sandboxId, valuesOf(after), valuesOf());
    await raisePodLimit(node, pod, container, before, after);
  }
  return response;
}

async function findContainer(node: Node, id: string): Promise<Found | undefined> {
  try {
    const known = node.registry.container(id) ?? (await node.registry.describeContainer(id));
    const pod = known === undefined ? undefined : await node.registry.pod(known.sandboxId);
    if (known !== undefined && pod !== undefined) return { known, pod };
    node.failOpen('unknown_pod', id);
  } catch (error) {
    // If the request were forwarded a moment later, it might be applied in the wrong order.
    if (isNotServing(error)) throw error;
    node.failOpen('unknown_pod', id, error);
  }
  return undefined;
}

/** Returns an error for the planned pod limits if the runtime has chosen other container limits. */
function refusalFor(step: Step, { found }: Forwarded): Error | undefined {
  const isPodBurst = step.kind === 'burst' && step.id === undefined;
  const isPodLimit = step.kind === 'pod-memory' || step.kind === 'pod-cpu' || isPodBurst;
  return isPodLimit && found !== undefined ? new Error('the runtime applied other limits than requested') : undefined;
}

/** Returns the container's values to roll back to, and the update as a step. Empty if the pod was not read. */
function changesOf(
  tree: CgroupTree,
  prepared: Read,
): { readonly before: LiveContainer | undefined; readonly asked?: CallersUpdate } {
  const { container, wanted, shares, cgroup, resources } = prepared;
  const now = withShares(prepared.state, prepared);
  if (now === undefined) return { before: undefined };
  const others = otherValues(tree, cgroup, container.resources, resources, wanted.memory ?? prepared.memory);
  const before = { ...now, ...others.before };
  const sets = { id: container.containerId, ...wanted, ...shares };
  return { before, asked: { changes: containerChanges(before, { ...now, ...sets, ...others.after }), sets } };
}

/** Returns the container's values to roll back to, with its stored shares if the request sets shares too. */
function withShares(state: PodState | undefined, { container, shares, cgroup }: Read): LiveContainer | undefined {
  const found = state?.containers.find(({ id }) => id === container.containerId);
  const now = withExactQuota(found, cgroup, container.resources);
  const stored = container.resources?.cpu_shares ?? 0n;
  if (now === undefined || shares.shares === undefined || stored <= 0n) return now;
  return { ...now, shares: cpuShares(Number(stored)) };
}
