import type { CgroupPath, CgroupTree } from '../../cgroups/index.ts';
import { type Bytes, Code, type CpuShares, PacedActions, Reason, ShimError, suggestion } from '../../core/index.ts';
import { type ContainerDescription, ContainerState, type PodDescription } from '../../runtime/index.ts';
import { assertReclaimable } from '../admission/memory-in-use.ts';
import { assertWithinCgroups } from '../admission/node-room.ts';
import { assertWithinLevel, isOfKubernetes, withDefaultRequests } from '../admission/pod-level.ts';
import { assertQosClassStays } from '../admission/qos-class.ts';
import { assertLimitsFit, assertRequestsFit } from '../admission/request-order.ts';
import {
  assertNoRestart,
  assertNotAssigned,
  assertResizable,
  assertSwapStays,
  withoutQuotasOfExclusiveCpus,
} from '../admission/resizable-containers.ts';
import type { Node } from '../node.ts';
import { compareLimits } from '../plan/amounts.ts';
import type { DesiredPod, MemoryRequests, ResizeOptions } from '../plan/resize-request.ts';
import { type ContainerStep, type PodTarget, stateAfter } from '../plan/step.ts';
import { declarePod } from '../pods/declare-pod.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import { containerSubject, podName, podSubject } from '../pods/names.ts';
import type { ContainerLimits, Limits, LiveContainer, MountedVolume, PodState } from '../pods/pod-state.ts';
import { NO_CPU_LIMIT, podCgroup, podWeight, readPod, readVolumes } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { storedLimits } from '../pods/stored-limits.ts';
import { limitsByName } from '../pods/volumes.ts';
import { derivedPodLimits, derivedPodShares, withInheritedLimits } from '../values/derived-values.ts';
import { type DeriveSettings, memoryQosOf } from '../values/pod-memory-qos.ts';
import { storedStep, withStoredValues } from '../values/written-along.ts';
import { assertHasVolumes, assertNotOfKubelet, assertWithinSizeLimits, withoutOverdue } from '../volumes/policies.ts';
import { observeVolumes } from '../volumes/volume-tracking.ts';
import { type AdmittedChange, admitRequests } from './admit-requests.ts';
import {
  askedValues,
  assertCreated,
  assertNotEnded,
  assertNotStarting,
  assertRunning,
  assertSandboxRuns,
  byName,
  describeContainers,
  desiredValues,
  knownBefore,
  mayRunAgain,
  sharesIn,
  withExactQuotas,
  withShares,
} from './pod-containers.ts';

/**
 * Paces the part of each update and resize before its first change, including its journal record. This part needs
 * milliseconds of the processor, of the runtime and of the disk. Otherwise, when 200 pods are resized at once, the
 * runtime would be idle until all of them are prepared. Each counts for at most 200 ms: one that waits for a hung disk
 * or runtime delays the others, but does not stop them. SharedLimits bounds how many can wait.
 */
export const preparations = new PacedActions(8, 200);

/** An admitted resize. */
export interface PreparedResize {
  readonly state: PodState;
  readonly target: PodTarget;
  /** The updates of containers that do not run. */
  readonly stored: readonly ContainerStep[];
  /** The pod's new shares, if they change. */
  readonly shares: CpuShares | undefined;
  readonly requests: AdmittedChange;
  /** The memory requests of the resize, with those that follow from new limits. */
  readonly memoryRequests: MemoryRequests | undefined;
}

/**
 * Reads the pod and returns the target of a resize. KEP-1287, KEP-6030, atomic resizes: throws if any part is not
 * admitted, before anything has changed.
 */
export async function prepareResize(
  node: Node,
  pod: PodDescription,
  asked: DesiredPod,
  { dryRun, waits = false }: Pick<ResizeOptions, 'dryRun' | 'waits'>,
): Promise<PreparedResize> {
  const volumes = readVolumes(node.volumes, pod);
  await assertVolumesOurs(node, pod, volumes, asked);
  const { all, containers, declared } = await readContainers(node, pod, asked, waits);
  if (!dryRun) node.outcomes.setDesired(pod.sandboxId, desiredValues(asked, containers));
  const read = await readPod(node.tree, pod, volumes, declared);
  if (!dryRun) node.outcomes.asks(pod.sandboxId, askedValues(asked, containers), knownBefore(asked, containers, read));
  observeVolumes(node, pod, volumes, read.memory);
  const exact = withShares(withExactQuotas(pod, read, all), sharesIn([...containers.values()]));
  const own = withoutQuotasOfExclusiveCpus(node.managers, pod, exact, asked);
  const desired = withInheritedLimits(exact, withDefaultRequests(exact, own));
  const memoryQos = memoryQosOf(node, pod, exact, desired, containers);
  const split = containerTargets(node.registry, pod, containers, exact, desired, memoryQos.ofContainer);
  assertNotStarting(pod, split.starting);
  const along = await withStoredValues(node, pod, exact, split.targets, all, memoryQos.ofContainer);
  const { state, targets, cgroups } = along;
  assertAdmitted(node, pod, state, desired, containers);
  assertCreated(pod, split.uncreated, waits);
  if (waits) await assertRunning(node, pod, mayRunAgain(declared, split.withoutCgroup));
  for (const target of targets) await assertContainerFits(node.tree, pod, containers, { state, cgroups }, target);
  const derived = derivedPodShares(pod, state, [...targets, ...sharesOf(split.stored)]);
  const shares = desired.pod.shares ?? derived?.then;
  const present = derived === undefined ? pod : { ...pod, cpuShares: derived.now };
  const weight = shares === undefined ? undefined : podWeight(present, state.weight, shares);
  const derivedLimits = await podLimits(node, pod, withCreated(state, targets, split), desired.pod);
  const limits = { ...derivedLimits, ...(weight && { weight }) };
  const after = stateAfter(state, { ...limits, containers: targets, volumes: new Map() });
  assertRequestsFit(desired, after, containers);
  const byContainer = limitsByName(node, pod, after);
  assertWithinSizeLimits(pod, declared, desired.volumes, after.memory, byContainer);
  const following = node.policies.targets(pod.sandboxId, volumes, after.memory, byContainer, desired.volumes);
  const sizes = withoutOverdue(node.volumes, pod, state, following, {
    present: presentSizes(node, pod, state, desired),
    podLimit: after.memory,
  });
  const unified = memoryQos.ofPod(limits.memory);
  const target: PodTarget = { ...limits, unified, containers: targets, call: 'none', volumes: sizes };
  // Last: nothing may fail between the record and the transaction.
  const requests = admitRequests(node, pod, state, desired, { dryRun });
  return { state, target, stored: split.stored, shares, requests, memoryRequests: desired.memoryRequests };
}

/** Throws UNKNOWN_VOLUME and VOLUME_RESIZED_BY_KUBELET. */
async function assertVolumesOurs(
  { kubelet, policies }: Node,
  pod: PodDescription,
  volumes: readonly MountedVolume[],
  { volumes: asked }: DesiredPod,
): Promise<void> {
  assertHasVolumes(pod, volumes, asked.keys());
  if (volumes.length > 0) await kubelet.refreshed();
  assertNotOfKubelet(policies, pod, asked.keys());
}

/** Returns the sizes that volumes should have at present, of those that the request does not name. */
function presentSizes(
  node: Node,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
): ReadonlyMap<string, Bytes> {
  const others = state.volumes.filter(({ name }) => !desired.volumes.has(name));
  return node.policies.targets(pod.sandboxId, others, state.memory, limitsByName(node, pod, state));
}

interface DeclaredContainers {
  /** In the order of their creation. */
  readonly all: readonly ContainerDescription[];
  readonly containers: ReadonlyMap<string, ContainerDescription>;
  readonly declared: DeclaredPod;
}

/** Reads the present and declared containers of the pod. Throws UNKNOWN_CONTAINER, POD_ENDED and SANDBOX_ENDED. */
async function readContainers(
  node: Node,
  pod: PodDescription,
  asked: DesiredPod,
  waits: boolean,
): Promise<DeclaredContainers> {
  const { all, listed } = await describeContainers(node.registry, pod);
  const containers = byName(all);
  const declared = await declarePod(node, pod, listed);
  // Also checked if the sandbox has ended: a misspelled name must not wait for the next sandbox.
  if (all.length > 0 || isComplete(declared)) assertKnownNames(pod, asked, declared, containers);
  assertNotEnded(pod, declared);
  await assertSandboxRuns(node.backend, pod, all, waits);
  // Without containers and a complete source, a wrong name is not detectable while the sandbox may have ended.
  // Otherwise an unknown container cannot be resized.
  assertKnownNames(pod, asked, declared, containers);
  return { all, containers, declared };
}

/** Throws for rules within the pod: QoS class, requests, static managers, resizePolicy, swap, parent cgroups. */
function assertAdmitted(
  node: Node,
  pod: PodDescription,
  state: PodState,
  desired: DesiredPod,
  containers: ReadonlyMap<string, ContainerDescription>,
): void {
  assertQosClassStays(pod, state, desired);
  assertLimitsFit(pod, state, desired, containers);
  assertWithinLevel(state, desired);
  assertNotAssigned(node.managers, pod, state, desired);
  assertNoRestart(pod, state, desired);
  assertSwapStays(pod, state, desired, containers);
  assertWithinCgroups(node.tree, pod, state, desired);
}

/** The effect of a resize on containers. */
interface SplitTargets {
  /** Limits of running containers. */
  readonly targets: readonly ContainerLimits[];
  /** Updates of containers that do not run. */
  readonly stored: readonly ContainerStep[];
  readonly withoutCgroup: readonly ContainerDescription[];
  /** Names of containers whose start is in progress. */
  readonly starting: readonly string[];
  /** Names of containers that the pod declares and that kubelet has not created yet. */
  readonly uncreated: readonly string[];
}

/** Splits the desired limits by the state of their containers. Throws as {@link assertResizable}. */
function containerTargets(
  registry: Registry,
  pod: PodDescription,
  containers: ReadonlyMap<string, ContainerDescription>,
  state: PodState,
  desired: DesiredPod,
  derive: DeriveSettings,
): SplitTargets {
  const targets: ContainerLimits[] = [];
  const stored: ContainerStep[] = [];
  const withoutCgroup: ContainerDescription[] = [];
  const starting: string[] = [];
  const uncreated: string[] = [];
  // The kernel has no file for a memory request, but kubelet may have derived other values from the request.
  const requested = Object.keys(desired.memoryRequests?.containers ?? {}).map((name): [string, Limits] => [name, {}]);
  for (const [name, limits] of new Map([...requested, ...desired.containers])) {
    assertResizable(pod, state, name);
    const container = containers.get(name);
    if (container === undefined) {
      uncreated.push(name);
      continue;
    }
    const id = container.containerId;
    const hasCgroup = state.containers.some((running) => running.id === id);
    if (container.state === ContainerState.CONTAINER_CREATED && (hasCgroup || registry.isStarting(id)))
      starting.push(name);
    if (hasCgroup) targets.push({ id, ...limits });
    else {
      stored.push(...storedStep(container, limits, derive));
      withoutCgroup.push(container);
    }
  }
  return { targets, stored, withoutCgroup, starting, uncreated };
}

/** Returns the shares that the runtime stores for containers that do not run. */
const sharesOf = (stored: readonly ContainerStep[]): ContainerLimits[] =>
  stored.flatMap(({ id, shares }) => (shares === undefined ? [] : [{ id, shares: shares.to }]));

/** Adds containers that were created but not started: they start with the stored values and count in the pod limit. */
function withCreated(
  state: PodState,
  targets: readonly ContainerLimits[],
  { stored, withoutCgroup }: Pick<SplitTargets, 'stored' | 'withoutCgroup'>,
): { readonly state: PodState; readonly targets: readonly ContainerLimits[] } {
  const created = withoutCgroup.flatMap(({ containerId: id, state: phase, resources }): LiveContainer[] => {
    const limits = phase === ContainerState.CONTAINER_CREATED ? storedLimits(resources) : undefined;
    return limits === undefined ? [] : [{ id, ...limits }];
  });
  const changed = stored.flatMap(({ id, memory, cpu }): ContainerLimits[] =>
    created.some((one) => one.id === id)
      ? [{ id, ...(memory && { memory: memory.to }), ...(cpu && { cpu: cpu.to }) }]
      : [],
  );
  return { state: { ...state, containers: [...state.containers, ...created] }, targets: [...targets, ...changed] };
}

function unknownContainer(pod: PodDescription, name: string, all: readonly string[], source?: string): ShimError {
  const has = all.length === 0 ? 'none' : all.join(', ');
  const message = `pod ${podName(pod)} has no container ${name}${suggestion(name, all)} (it has ${has})`;
  const where = { pod: pod.metadata.uid, container: name, ...(source !== undefined && { source }) };
  return new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER, message, where);
}

/** Whether the source lists all resizable containers of the pod, including those that kubelet has not created yet. */
const isComplete = ({ source }: DeclaredPod): boolean => source === 'spec' || source === 'kubelet-state';

/** Throws UNKNOWN_CONTAINER for a container neither present nor declared, also in sizes such as `50%/web`. */
function assertKnownNames(
  pod: PodDescription,
  { containers, memoryRequests, volumes }: DesiredPod,
  declared: DeclaredPod,
  present: ReadonlyMap<string, ContainerDescription>,
): void {
  const all = [...new Set([...present.keys(), ...declared.containers.map(({ name }) => name)])].sort();
  const shares = [...volumes.values()].flatMap((policy) =>
    policy.kind === 'container-share' ? [policy.container] : [],
  );
  const names = [...Object.keys(memoryRequests?.containers ?? {}), ...containers.keys(), ...shares];
  const unknown = names.find((name) => !all.includes(name));
  if (unknown !== undefined)
    throw unknownContainer(pod, unknown, all, isComplete(declared) ? declared.source : undefined);
}

/** Throws MEMORY_NOT_RECLAIMABLE if a container's usage blocks a decrease. */
async function assertContainerFits(
  tree: CgroupTree,
  pod: PodDescription,
  containers: ReadonlyMap<string, ContainerDescription>,
  { state, cgroups }: { readonly state: PodState; readonly cgroups: ReadonlyMap<string, CgroupPath> },
  { id, memory }: ContainerLimits,
): Promise<void> {
  const now = state.containers.find((container) => container.id === id);
  const container = [...containers.values()].find(({ containerId }) => containerId === id);
  if (memory === undefined || now === undefined || container === undefined) return;
  if (compareLimits(memory, now.memory) >= 0) return;
  const cgroup = cgroups.get(id);
  if (cgroup === undefined) return;
  await assertReclaimable(tree, containerSubject(container, pod), { cgroup, now: now.memory, wanted: memory });
}

/**
 * Returns the pod's limits: the desired ones, otherwise the ones derived from its containers, without decreases that
 * usage blocks. Throws MEMORY_NOT_RECLAIMABLE if usage blocks a desired decrease.
 */
async function podLimits(
  node: Node,
  pod: PodDescription,
  { state, targets }: { readonly state: PodState; readonly targets: readonly ContainerLimits[] },
  asked: Limits,
): Promise<Limits> {
  const { memory, cpu } = asked;
  // A desired limit is not derived from the containers.
  const free: PodState = {
    ...state,
    ...(memory !== undefined && { memory: 'max' }),
    ...(cpu !== undefined && { cpu: NO_CPU_LIMIT }),
  };
  const derived = await derivedPodLimits(node, pod, free, targets, { addsLimit: isOfKubernetes(state) });
  if (memory !== undefined) {
    await assertReclaimable(node.tree, podSubject(pod), {
      cgroup: podCgroup(pod),
      now: state.memory,
      wanted: memory,
    });
  }
  return { ...derived, ...(memory !== undefined && { memory }), ...(cpu !== undefined && { cpu }) };
}
