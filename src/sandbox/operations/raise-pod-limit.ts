import { bytes, type CpuMax, messageOf, microseconds } from '../../core/index.ts';
import {
  type ContainerDescription,
  ContainerState,
  type LinuxContainerResources,
  type PodDescription,
} from '../../runtime/index.ts';
import type { Node } from '../node.ts';
import { compareCpu, compareLimits } from '../plan/amounts.ts';
import { ifTheyArrive, podLimitsBetween, stateWith } from '../plan/pod-limits.ts';
import type { ContainerStep } from '../plan/step.ts';
import { declarePod } from '../pods/declare-pod.ts';
import { type DeclaredContainer, type DeclaredPod, withRunning } from '../pods/declared-pod.ts';
import { identityOf, lockKeyOf } from '../pods/pod-identity.ts';
import type { EffectiveLimits, Limits, LiveContainer, PodState } from '../pods/pod-state.ts';
import { hasPodCgroup, readDeclaredPod } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { amountsOf } from '../pods/runtime-containers.ts';
import { storedLimits } from '../pods/stored-limits.ts';
import { tryRecoverPod } from '../transaction/recover.ts';
import { Transaction } from '../transaction/transaction.ts';

/** Raises a pod limit. Undefined if the present limit suffices. */
type Raise = (() => Promise<void>) | undefined;

/**
 * Raises the pod limit for a container that starts with higher limits than in its last run or at its creation: kubelet
 * does not do this (kubernetes/kubernetes#138760). The caller holds the pod's lock. Never rejects: the container starts
 * as it would without the shim.
 */
export async function raisePodLimit(
  node: Node,
  pod: PodDescription,
  { containerId, name }: NamedContainer,
  before: EffectiveLimits | undefined,
  after: EffectiveLimits | undefined,
): Promise<void> {
  if (before === undefined || after === undefined || !hasPodCgroup(pod)) return;
  try {
    const raise = await raiseFor(node, pod, { containerId, name }, { before, after });
    await raise?.();
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, container: containerId, error: messageOf(error) }, 'pod limit not raised');
  }
}

/** Returns a function that raises the pod limit for a container's new limits. Undefined if the limit suffices. */
async function raiseFor(
  node: Node,
  pod: PodDescription,
  container: NamedContainer,
  { before, after }: { readonly before: EffectiveLimits; readonly after: EffectiveLimits },
): Promise<Raise> {
  const state = await readDeclaredPod(node, pod, []);
  const unanswered = node.journal.unanswered.of(pod.sandboxId);
  const change = restartedContainer(state, container, { before, after }, unanswered);
  return raiseBetween(node, pod, container.containerId, change, (raised) =>
    node.pending.withoutWritten(pod, state, raised),
  );
}

/** Returns a function that raises the pod limit for a change of its containers. Undefined if the limit suffices. */
function raiseBetween(
  node: Node,
  pod: PodDescription,
  containerId: string,
  { state, before, after }: PodChange,
  bound: (raised: Limits) => Limits = (raised) => raised,
): Raise {
  const { memory, cpu } = podLimitsBetween(before, after);
  const raised = bound({
    ...(memory !== undefined && compareLimits(memory, state.memory) > 0 && { memory }),
    ...(cpu !== undefined && compareCpu(cpu, state.cpu) > 0 && { cpu }),
  });
  if (Object.keys(raised).length === 0) return undefined;
  return async () => {
    const transaction = await Transaction.begin(node, pod, state, { ...raised, call: 'none', volumes: new Map() });
    await transaction.apply();
    node.log.info({ pod: pod.sandboxId, container: containerId }, 'pod limit raised for a container');
  };
}

/**
 * KEP-1287, order: raises the pod limit for a new container with higher limits than its predecessor of the same name,
 * which may be from an ended sandbox: kubelet does not write the cgroup of an existing pod.
 */
export async function raisePodForRestart(
  node: Node,
  sandboxId: string,
  containerId: string,
  name: string,
  resources: LinuxContainerResources | null | undefined,
): Promise<void> {
  const after = storedLimits(resources);
  if (after === undefined) return;
  try {
    const pod = await node.registry.pod(sandboxId);
    if (pod === undefined) return;
    // The first container of its name does not wait for a resize of its pod.
    if (!isReplacement(pod) && (await previousContainer(node.registry, pod, containerId, name)) === undefined) return;
    await node.lock.run(lockKeyOf(pod), async () => {
      await tryRecoverPod(node, pod);
      if (!hasPodCgroup(pod)) return;
      const previous = await previousContainer(node.registry, pod, containerId, name);
      await raiseAndRecord(node, pod, containerId, () =>
        previous === undefined
          ? raiseForReplaced(node, pod, { containerId, name }, after)
          : raiseForRestarted(node, pod, { containerId, name }, previous, after),
      );
    });
  } catch (error) {
    node.failOpen('unreadable_state', containerId, error);
  }
}

async function raiseForRestarted(
  node: Node,
  pod: PodDescription,
  container: NamedContainer,
  previous: ContainerDescription,
  after: EffectiveLimits,
): Promise<Raise> {
  const before = await limitsBeforeRestart(node, pod, container, previous);
  return before && raiseFor(node, pod, container, { before, after });
}

async function raiseForReplaced(
  node: Node,
  pod: PodDescription,
  container: NamedContainer,
  after: EffectiveLimits,
): Promise<Raise> {
  const change = await replacedContainers(node, pod, container, after);
  return change && raiseBetween(node, pod, container.containerId, change);
}

/** Like {@link raisePodLimit}, with an entry in the history, because there is no client request that has one. */
async function raiseAndRecord(
  node: Node,
  pod: PodDescription,
  containerId: string,
  prepare: () => Promise<Raise>,
): Promise<void> {
  try {
    const raise = await prepare();
    if (raise === undefined) return;
    const report = node.history.request(identityOf(pod), { kind: 'shim' });
    await node.outcomes.track(pod.sandboxId, raise, report);
  } catch (error) {
    node.log.warn({ pod: pod.sandboxId, container: containerId, error: messageOf(error) }, 'pod limit not raised');
  }
}

/**
 * Returns the last container of this name that has run. A container that never started had no effect on the pod limit:
 * its client may not know it, if the shim ended before it answered.
 */
async function previousContainer(
  registry: Registry,
  pod: PodDescription,
  containerId: string,
  name: string,
): Promise<ContainerDescription | undefined> {
  // Listed by the backend: the registry does not know containers that were created without the shim.
  const containers = await registry.listContainers(pod);
  const sameName = containers.filter(({ id, metadata }) => id !== containerId && metadata?.name === name);
  sameName.sort((a, b) => Number(b.created_at - a.created_at));
  for (const { id } of sameName) {
    const previous = await registry.describeContainer(id);
    if (previous !== undefined && previous.state !== ContainerState.CONTAINER_CREATED) return previous;
  }
  return undefined;
}

type NamedContainer = Pick<ContainerDescription, 'containerId' | 'name'>;

/** A pod whose containers change. */
interface PodChange {
  /** The present pod. */
  readonly state: PodState;
  readonly before: PodState;
  readonly after: PodState;
}

/** A container of a sandbox that has ended. */
interface EarlierContainer {
  readonly id: string;
  readonly name: string;
  readonly limits: EffectiveLimits;
  readonly exitCode: number;
}

const NO_CPU: CpuMax = { quota: microseconds(0), period: microseconds(100_000) };
const NOTHING: EffectiveLimits = { memory: bytes(0), cpu: NO_CPU };

/** Whether the pod had an earlier sandbox. Its cgroup is then older than this one, unless the node restarted. */
const isReplacement = ({ metadata }: PodDescription): boolean => metadata.uid !== '' && (metadata.attempt ?? 0) > 0;

/**
 * Returns a pod with the containers of its earlier sandboxes, and with those that kubelet creates in their place. A
 * ResizePod may have lowered the former, and the pod limit with them; kubelet creates the latter with its own values,
 * one after the other. Undefined if the sandbox is the first one, or if it is unknown what the pod limit was for.
 *
 * Without an earlier container, the pod limit has to hold what the spec declares. Other sources report neither a
 * deliberately set limit (a pod-level limit) nor an ordinary init container.
 */
async function replacedContainers(
  node: Node,
  pod: PodDescription,
  container: NamedContainer,
  limits: EffectiveLimits,
): Promise<PodChange | undefined> {
  if (!isReplacement(pod)) return undefined;
  const listed = await node.registry.listContainers(pod);
  const state = await readDeclaredPod(node, pod, [], listed);
  const earlier = await earlierContainers(node, pod);
  if (earlier.size > 0) return changeFrom(node, pod, state, container, { limits, earlier });
  const isFirst = listed.every(({ id }) => id === container.containerId);
  if (!isFirst || state.declared?.source !== 'spec') return undefined;
  const none = state.declared.containers.map(({ name, id }): [string, EarlierContainer] => [
    name,
    { id: id ?? name, name, limits: NOTHING, exitCode: 0 },
  ]);
  return changeFrom(node, pod, state, container, { limits, earlier: new Map(none) });
}

function changeFrom(
  { journal, registry }: Node,
  pod: PodDescription,
  state: PodState,
  { containerId, name }: NamedContainer,
  { limits, earlier }: { readonly limits: EffectiveLimits; readonly earlier: ReadonlyMap<string, EarlierContainer> },
): PodChange | undefined {
  const { declared } = state;
  if (declared === undefined) return undefined;
  const sandboxes = earlierSandboxes(registry, pod).map(({ sandboxId }) => sandboxId);
  const ids = new Set([...sandboxes, ...[...earlier.values()].map(({ id }) => id)]);
  // The cgroups of an earlier sandbox may still exist.
  const live = state.containers.filter(({ id }) => !ids.has(id) && id !== containerId);
  const containers = withEarlier(declared, earlier).map((one) =>
    one.name === name ? { ...one, id: containerId } : one,
  );
  const keyOf = ({ id, name: own }: DeclaredContainer): string => id ?? own;
  const replaced = containers.flatMap((one): LiveContainer[] => {
    const before = earlier.get(one.name);
    return before === undefined ? [] : [{ id: keyOf(one), ...before.limits }];
  });
  const isReplaced = ({ id }: LiveContainer): boolean => replaced.some((other) => other.id === id);
  const common = { ...state, declared: { ...declared, containers } };
  const after = { ...common, containers: [...live, { id: containerId, ...limits }] };
  return {
    state,
    before: { ...common, containers: [...live.filter((one) => !isReplaced(one)), ...replaced] },
    after: ifTheyArrive(after, journal.unanswered.of(pod.sandboxId)),
  };
}

/**
 * Returns the declared containers, with those of earlier sandboxes that kubelet has yet to create if the source does
 * not list them. A container that ended successfully may be an ordinary init container: the present pod limit shows
 * whether it counts as one.
 */
function withEarlier(
  { source, containers }: NonNullable<PodState['declared']>,
  earlier: ReadonlyMap<string, EarlierContainer>,
): readonly DeclaredContainer[] {
  const mayBeInit = ({ exitCode }: EarlierContainer): { mayBeInit?: true } =>
    exitCode === 0 ? { mayBeInit: true } : {};
  const known = containers.map((one) => {
    const before = earlier.get(one.name);
    return before === undefined || one.kind !== 'unknown' || source === 'kubelet-state'
      ? one
      : { ...one, ...mayBeInit(before) };
  });
  if (source === 'spec' || source === 'kubelet-state') return known;
  const others = [...earlier.values()].filter(({ name }) => !containers.some((one) => one.name === name));
  return [
    ...known,
    ...others.map((one): DeclaredContainer => {
      const { id, name, limits } = one;
      return { name, id, kind: 'unknown', state: 'ended', limits: amountsOf(limits), ...mayBeInit(one) };
    }),
  ];
}

const earlierSandboxes = (
  { pods }: Pick<Registry, 'pods'>,
  { sandboxId, metadata }: PodDescription,
): readonly PodDescription[] =>
  pods.filter((other) => other.sandboxId !== sandboxId && other.metadata.uid === metadata.uid);

/** Returns the last container of each name that has run in an earlier sandbox of the pod, in the order of creation. */
async function earlierContainers(node: Node, pod: PodDescription): Promise<ReadonlyMap<string, EarlierContainer>> {
  const sandboxes = earlierSandboxes(node.registry, pod);
  const listed = (await Promise.all(sandboxes.map((sandbox) => node.registry.listContainers(sandbox)))).flat();
  const ran = listed
    .filter(({ state }) => state !== ContainerState.CONTAINER_CREATED)
    .sort((one, other) => Number(one.created_at - other.created_at));
  const byName = new Map<string, EarlierContainer>();
  for (const { id, metadata } of ran) {
    const container = await node.registry.describeContainer(id);
    const limits = storedLimits(container?.resources);
    const name = metadata?.name ?? '';
    byName.delete(name);
    if (container !== undefined && limits !== undefined)
      byName.set(name, { id, name, limits, exitCode: container.exitCode });
  }
  return byName;
}

/** Returns the pod before and after the limits of a starting container change. */
export function restartedContainer(
  state: PodState,
  container: NamedContainer,
  { before, after }: { readonly before: EffectiveLimits; readonly after: EffectiveLimits },
  unanswered: readonly ContainerStep[] = [],
): PodChange {
  const present = ifTheyArrive(stateWithContainer(state, container, before), unanswered);
  return { state, before: present, after: stateWith(present, [{ id: container.containerId, ...after }]) };
}

/** Returns the pod as if this container were running with these limits. */
function stateWithContainer(state: PodState, container: NamedContainer, limits: EffectiveLimits): PodState {
  const { containers, declared } = state;
  const { containerId: id } = container;
  return {
    ...state,
    containers: [...containers.filter((other) => other.id !== id), { id, ...limits }],
    ...(declared && { declared: withRunning(declared, container) }),
  };
}

/**
 * Returns the limits with which the previous container of this name counts in the pod limit. Undefined if the runtime
 * stores none. A container that runs or has failed counts with its stored limits.
 */
async function limitsBeforeRestart(
  node: Node,
  pod: PodDescription,
  { name }: NamedContainer,
  previous: ContainerDescription,
): Promise<EffectiveLimits | undefined> {
  const stored = storedLimits(previous.resources);
  if (stored === undefined || previous.state !== ContainerState.CONTAINER_EXITED || previous.exitCode !== 0)
    return stored;
  const listed = await node.registry.listContainers(pod);
  const withoutNewer = listed.filter(({ id, metadata }) => metadata?.name !== name || id === previous.containerId);
  return countedLimits(await declarePod(node, pod, withoutNewer), name, stored);
}

/**
 * Returns the limits with which a container that does not run counts: 0 if it ended successfully and no source lists
 * it, because the pod limit may not include it then. A limit that it did not have stays `max`.
 */
export function countedLimits({ containers }: DeclaredPod, name: string, stored: EffectiveLimits): EffectiveLimits {
  if (!containers.some((one) => one.name === name && one.isUncounted === true)) return stored;
  const { memory, cpu } = stored;
  return {
    memory: memory === 'max' ? memory : bytes(0),
    cpu: cpu.quota === 'max' ? cpu : { ...cpu, quota: microseconds(0) },
  };
}
