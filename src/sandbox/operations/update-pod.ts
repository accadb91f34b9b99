import { cpuSharesOfCri, weightMatchesShares } from '../../cgroups/index.ts';
import {
  type Bytes,
  Code,
  type CpuMax,
  type CpuShares,
  type CpuWeight,
  cpuShares,
  type Limit,
  Reason,
  ShimError,
} from '../../core/index.ts';
import {
  encode,
  isNotServing,
  isUnimplemented,
  type LinuxContainerResources,
  type Messages,
  type PodDescription,
} from '../../runtime/index.ts';
import { assertReclaimable } from '../admission/memory-in-use.ts';
import { parseLimits } from '../admission/parse-limits.ts';
import { swapAfter } from '../admission/swap-after.ts';
import { addOverhead, assertId, validatePodRequest, withSubject } from '../admission/validate.ts';
import { volumeChanges } from '../foresight/pending-kubelet-resize.ts';
import { criRequester } from '../history/history-entry.ts';
import { criFields } from '../history/newest-values.ts';
import type { Node } from '../node.ts';
import type { PodTarget, UnifiedChange } from '../plan/step.ts';
import { knownOf } from '../plan/value-changes.ts';
import { readOrFailOpen } from '../pods/fail-open.ts';
import { podSubject } from '../pods/names.ts';
import { identityOf, lockKeyOf } from '../pods/pod-identity.ts';
import type { PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, podCgroup, podWeight, readDeclaredPod, readVolumes } from '../pods/read-pod.ts';
import { SWAP_MAX } from '../pods/stored-limits.ts';
import { reclaimBy } from '../transaction/lower-memory.ts';
import { tryRecoverPod } from '../transaction/recover.ts';
import { assertInTime, Transaction } from '../transaction/transaction.ts';
import { dropRepeatedShares, podSettingChanges } from '../values/pod-settings.ts';
import { observeVolumes } from '../volumes/volume-tracking.ts';
import { scheduleVolumeGrowth } from './pod-volumes.ts';
import { preparations } from './prepare-resize.ts';
import type { CallerOf } from './update-container.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

/**
 * UpdatePodSandboxResources: writes all fields of `resources` plus `overhead` to the pod's cgroup, then forwards the
 * call (KEP-1287: the runtime is notified after the cgroup is written). The call is idempotent: kubelet writes the same
 * values itself, before or after.
 *
 * @param forward calls the runtime and returns its answer. If the runtime lacks the call (containerd before 2.3), the
 *   result is an empty response once the pod's cgroup is written.
 * @param caller its deadline, in milliseconds by steadyNow, and its identity for the history. Throws ShimError
 *   INVALID_VALUE, DEADLINE, MEMORY_NOT_RECLAIMABLE or VOLUME_IN_USE before anything changes, and UNKNOWN_POD if the
 *   runtime lacks the call. Throws RECLAIM_TIMEOUT, and errors of a step or of `forward`, after the rollback.
 */
export async function updatePod(
  node: Node,
  request: Request,
  forward: () => Promise<Buffer>,
  { deadline = Infinity, requester = criRequester(undefined) }: CallerOf = {},
): Promise<Buffer> {
  assertId('pod_sandbox_id', request.pod_sandbox_id);
  const found = await findPod(node, request.pod_sandbox_id);
  if (found.kind === 'none') return forwardOrThrow(forward, found.why);
  if (!hasPodCgroup(found.pod)) return forward();
  const { sandboxId } = found.pod;
  const report = node.history.request(identityOf(found.pod), requester);
  node.outcomes.check(sandboxId, () => validatePodRequest(podSubject(found.pod), request), report);
  const writer = { arrival: node.newest.arrival(), text: `an update of ${podSubject(found.pod).text}` };
  const update = async (): Promise<Buffer> => {
    // The call may have waited for the lock.
    assertInTime(found.pod, deadline, writer.text);
    // Read under the lock: an earlier request may have changed the pod's shares. The pod may also have been removed.
    const pod = (await readOrFailOpen(node.failOpen, sandboxId, () => node.registry.pod(sandboxId))) ?? found.pod;
    await tryRecoverPod(node, pod);
    const prepared = await preparations.run(() => prepareAndBegin(node, pod, request, deadline));
    const response = prepared === undefined ? await forward() : await resize(node, prepared, forward);
    await node.newest.applied(sandboxId, writer, criFields(undefined, request.resources));
    return response;
  };
  return node.lock.run(lockKeyOf(found.pod), () => node.outcomes.track(sandboxId, update, report));
}

type Found = { readonly kind: 'pod'; readonly pod: PodDescription } | { readonly kind: 'none'; readonly why: unknown };

async function findPod(node: Node, id: string): Promise<Found> {
  try {
    const pod = await node.registry.pod(id);
    if (pod !== undefined) return { kind: 'pod', pod };
    node.failOpen('unknown_pod', id);
    const asked = id.slice(0, 64);
    const message = `pod ${JSON.stringify(asked)} is unknown to the runtime, or its status is incomplete`;
    return { kind: 'none', why: new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, message, { pod: asked }) };
  } catch (error) {
    if (isNotServing(error)) throw error;
    node.failOpen('unknown_pod', id, error);
    return { kind: 'none', why: error };
  }
}

/** Returns the runtime's own answer about an unknown pod. Throws `why` if the runtime lacks the call. */
async function forwardOrThrow(forward: () => Promise<Buffer>, why: unknown): Promise<Buffer> {
  try {
    return await forward();
  } catch (error) {
    throw isUnimplemented(error) ? why : error;
  }
}

/** Returns the runtime's answer, or an empty response when it lacks the call. */
async function forwardOrAnswer(forward: () => Promise<Buffer>): Promise<Buffer> {
  try {
    return await forward();
  } catch (error) {
    if (!isUnimplemented(error)) throw error;
    return encode('UpdatePodSandboxResourcesResponse', {});
  }
}

interface Prepared {
  /** The pod with the shares of the request. */
  readonly pod: PodDescription;
  readonly state: PodState;
  readonly limits: { readonly memory?: Limit<Bytes>; readonly cpu?: CpuMax; readonly weight?: CpuWeight };
  readonly unified: readonly UnifiedChange[];
}

async function prepare(node: Node, known: PodDescription, asked: Request): Promise<Prepared> {
  const { tree } = node;
  const cgroup = podCgroup(known);
  const volumes = readVolumes(node.volumes, known);
  const state = await readDeclaredPod(node, known, volumes);
  const request = dropRepeatedShares(asked, state.weight);
  observeVolumes(node, known, volumes, state.memory);
  const { text, ids } = podSubject(known);
  const { resources, overhead } = withSubject(text, ids, () => addOverhead(request, state.cpu));
  const limits = withSubject(text, ids, () => podLimits(known, state, resources, overhead));
  node.outcomes.setDesired(known.sandboxId, { pod: limits });
  node.outcomes.asks(known.sandboxId, { pod: limits }, knownOf(state));
  // Shares that repeat the weight are not written. If kubelet has written that weight since, they are still the pod's
  // shares.
  const isStale = !matchesWeight(known, state.weight);
  const shares = sharesOf((isStale ? asked : request).resources, request.overhead);
  const pod = shares === undefined ? known : { ...known, cpuShares: shares };
  const unified = await podSettingChanges(node.tree, known, cgroup, resources, limits.memory ?? state.memory);
  if (limits.memory !== undefined) {
    const swap = unified.find(({ key }) => key === SWAP_MAX);
    const change = { cgroup, now: state.memory, wanted: limits.memory, swapAfter: swapAfter(cgroup, swap) };
    await assertReclaimable(tree, podSubject(known), change);
  }
  return { pod, state, limits, unified };
}

const matchesWeight = ({ cpuShares: known }: PodDescription, weight: CpuWeight | undefined): boolean =>
  known !== undefined && weight !== undefined && weightMatchesShares(weight, cpuShares(known));

/** Reads the pod, plans and journals the resize. Undefined if the pod is unreadable: the request is forwarded as is. */
async function prepareAndBegin(
  node: Node,
  known: PodDescription,
  request: Request,
  deadline: number,
): Promise<Begun | undefined> {
  const prepared = await readOrFailOpen(node.failOpen, known.sandboxId, () => prepare(node, known, request));
  if (prepared === undefined) return undefined;
  const until = reclaimBy(node.reclaimTimeout, deadline);
  const { pod, state, limits, unified } = prepared;
  const after = { ...state, ...limits };
  // kubelet raises the pod limit before its containers' limits (KEP-1287). Growing volumes wait for both (KEP-6030).
  const pending = node.pending.ofPodUpdate(pod, state, limits.memory);
  const { volumes, isFinal } = volumeChanges(node, pod, { state, after, pending });
  const target: PodTarget = { ...limits, unified, call: 'pod', volumes };
  return { pod, isFinal, transaction: await Transaction.begin(node, pod, state, target, { until }) };
}

/** A journalled resize. */
interface Begun {
  /** The pod with the shares of the request. */
  readonly pod: PodDescription;
  readonly transaction: Transaction;
  /** Whether no more calls that affect the volumes are expected. */
  readonly isFinal: boolean;
}

async function resize(
  node: Node,
  { pod, transaction, isFinal }: Begun,
  forward: () => Promise<Buffer>,
): Promise<Buffer> {
  const response = await transaction.run(async (steps) => {
    await steps.apply();
    const answer = await steps.call(() => forwardOrAnswer(forward));
    await steps.applyRest();
    return answer;
  });
  node.registry.updatePod(pod);
  scheduleVolumeGrowth(node, pod, isFinal);
  return response;
}

/**
 * Returns the limits in `resources`. A value that `resources` does not set does not change.
 * @param resources with the overhead, except for the shares
 */
function podLimits(
  pod: PodDescription,
  state: PodState,
  resources: LinuxContainerResources | null,
  overhead: LinuxContainerResources | null,
): Prepared['limits'] {
  if (resources === null) return {};
  const { memory, cpu } = parseLimits(resources, state.cpu);
  const shares = sharesOf(resources, overhead);
  const weight = shares === undefined ? undefined : podWeight(pod, state.weight, shares);
  return {
    ...(memory === undefined ? {} : { memory }),
    ...(cpu === undefined ? {} : { cpu }),
    ...(weight === undefined ? {} : { weight }),
  };
}

/** Returns the shares of `resources` plus `overhead`. Undefined when `resources` sets none. */
function sharesOf(
  resources: LinuxContainerResources | null,
  overhead: LinuxContainerResources | null,
): CpuShares | undefined {
  const asked = resources === null ? undefined : cpuSharesOfCri(resources.cpu_shares);
  const extra = overhead === null ? undefined : cpuSharesOfCri(overhead.cpu_shares);
  return asked === undefined ? undefined : cpuShares(asked + (extra ?? 0));
}
