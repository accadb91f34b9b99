import type { CgroupTree } from '../../cgroups/index.ts';
import { Code, Reason, ShimError, suggestion } from '../../core/errors/index.ts';
import type { CpuShares } from '../../core/quantities/index.ts';
import type { ResourceManagers } from '../../kubelet/index.ts';
import type { Backend, ContainerDescription, PodDescription } from '../../runtime/index.ts';
import {
  type ContainerLimits,
  type DeclarePodParts,
  type Limits,
  NO_CPU_LIMIT,
  type PodState,
  type Registry,
  containerCgroup,
  containerSubject,
  limitsByName,
  podCgroup,
  podName,
  podSubject,
  podWeight,
  readDeclaredPod,
  readVolumes,
} from '../../sandbox/index.ts';
import {
  assertNoRestart,
  assertNotAssigned,
  assertQosClassStays,
  assertReclaimable,
  assertRequestsFit,
  assertResizable,
  assertSwapStays,
  assertWithinCgroups,
} from '../admission/index.ts';
import type { PerformParts } from '../execute/index.ts';
import {
  type ContainerStep,
  type DesiredPod,
  type PodTarget,
  type ResizeOptions,
  compareLimits,
  knownOf,
  stateAfter,
} from '../model/index.ts';
import {
  derivedPodLimits,
  derivedPodShares,
  type DeriveSettings,
  memoryQosOf,
  storedStep,
  withStoredValues,
} from '../values/index.ts';
import { assertHasVolumes, observeVolumes } from '../volumes/index.ts';
import { type AdmitRequestsParts, admitRequests } from './admit-requests.ts';
import { byName, describeContainers, desiredValues, sharesIn, withExactQuotas, withShares } from './pod-containers.ts';

export interface PrepareResizeParts
  extends PerformParts,
    DeclarePodParts,
    Omit<AdmitRequestsParts, 'tree' | 'kubelet' | 'specs'> {
  readonly registry: Registry;
  /** What kubelet's managers have assigned to containers. */
  readonly managers: ResourceManagers;
  /** Client for the shim's own calls. */
  readonly backend: Backend;
}

/** A resize that is admitted. */
export interface PreparedResize {
  readonly state: PodState;
  readonly target: PodTarget;
  /** The updates of containers that do not run. */
  readonly stored: readonly ContainerStep[];
  /** The pod's new shares, if they change. */
  readonly shares: CpuShares | undefined;
  /** Drops the record of the pod's new requests: the resize has failed. Returns whether this frees room for other pods. */
  readonly dropRequests: () => boolean;
}

/**
 * Reads the pod, and returns the target of a resize. KEP-1287, KEP-6030, atomic resizes: throws when any part of it is not admitted;
 * nothing has changed then.
 */
export async function prepareResize(
  parts: PrepareResizeParts,
  pod: PodDescription,
  desired: DesiredPod,
  { dryRun }: Pick<ResizeOptions, 'dryRun'>,
): Promise<PreparedResize> {
  const { policies } = parts;
  const volumes = readVolumes(parts.volumes, pod);
  assertHasVolumes(pod, volumes, desired.volumes.keys());
  const { all, listed } = await describeContainers(parts, pod);
  const containers = byName(all);
  const wanted = desiredValues(desired, containers);
  if (!dryRun) parts.outcomes.setDesired(pod.sandboxId, wanted);
  const read = await readDeclaredPod(parts, pod, volumes, listed);
  if (!dryRun) parts.outcomes.asks(pod.sandboxId, wanted, knownOf(read));
  assertPolicyContainers(pod, desired, read, containers);
  observeVolumes(parts, pod, volumes, read.memory);
  const exact = withShares(withExactQuotas(pod, read, all), sharesIn([...containers.values()]));
  const memoryQos = memoryQosOf(parts, pod, exact, desired, containers);
  const split = containerTargets(pod, containers, exact, desired, memoryQos.ofContainer);
  const { state, targets } = await withStoredValues(parts, pod, exact, split.targets, all, memoryQos.ofContainer);
  assertAdmitted(parts, pod, state, desired, containers);
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

/** Throws the errors of the rules that do not depend on other pods: QoS class, static managers, resizePolicy, swap, cgroups above. */
function assertAdmitted(
  parts: Pick<PrepareResizeParts, 'tree' | 'managers'>,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  containers: ReadonlyMap<string, ContainerDescription>,
): void {
  assertQosClassStays(pod, state, desired);
  assertNotAssigned(parts, pod, state, desired);
  assertNoRestart(pod, state, desired);
  assertSwapStays(pod, state, desired, containers);
  assertWithinCgroups(parts, pod, state, desired);
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
      // The runtime lists containers in any order.
      throw unknownContainer(pod, name, [...containers.keys()].sort());
    }
    const id = container.containerId;
    if (state.containers.some((running) => running.id === id)) targets.push({ id, ...limits });
    else stored.push(...storedStep(container, limits, derive));
  }
  return { targets, stored };
}

function unknownContainer(pod: PodDescription, name: string, all: readonly string[]): ShimError {
  const has = all.length === 0 ? 'none' : all.join(', ');
  const message = `pod ${podName(pod)} has no container ${name}${suggestion(name, all)} (it has ${has})`;
  const where = { pod: pod.metadata.uid, container: name };
  return new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER, message, where);
}

/** Throws UNKNOWN_CONTAINER for a size such as `50%/web` if the pod has, and declares, no container web. */
function assertPolicyContainers(
  pod: PodDescription,
  { volumes }: DesiredPod,
  { declared }: PodState,
  present: ReadonlyMap<string, ContainerDescription>,
): void {
  const all = [...new Set([...present.keys(), ...(declared?.containers ?? []).map(({ name }) => name)])].sort();
  for (const policy of volumes.values())
    if (policy.kind === 'container-share' && !all.includes(policy.container))
      throw unknownContainer(pod, policy.container, all);
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
  parts: Pick<PrepareResizeParts, 'tree' | 'journal' | 'log'>,
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
