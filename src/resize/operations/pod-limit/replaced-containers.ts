import { type CpuMax, bytes, microseconds } from '../../../core/quantities/index.ts';
import {
  type Backend,
  type ContainerDescription,
  ContainerState,
  type PodDescription,
} from '../../../runtime/index.ts';
import type { CgroupTree } from '../../../cgroups/index.ts';
import {
  type DeclarePodParts,
  type DeclaredContainer,
  type EffectiveLimits,
  type LiveContainer,
  type PodState,
  type Registry,
  amountsOf,
  readDeclaredPod,
  storedLimits,
} from '../../../sandbox/index.ts';
import type { PodJournal } from '../../journal/index.ts';
import { ifTheyArrive } from '../../plan/index.ts';

export type NamedContainer = Pick<ContainerDescription, 'containerId' | 'name'>;

/** A pod whose containers change. */
export interface PodChange {
  /** The pod as it is. */
  readonly state: PodState;
  readonly before: PodState;
  readonly after: PodState;
}

export interface ReplacedContainersParts extends DeclarePodParts {
  readonly registry: Registry;
  readonly backend: Backend;
  readonly tree: CgroupTree;
  readonly journal: PodJournal;
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

/** Whether the pod had a sandbox before this one. The cgroup of the pod is then older than the sandbox, unless the node has restarted. */
export const isReplacement = ({ metadata }: PodDescription): boolean =>
  metadata.uid !== '' && (metadata.attempt ?? 0) > 0;

/**
 * Returns a pod with the containers of its earlier sandboxes, and with those that kubelet creates in their place. A ResizePod may have
 * lowered the former, and the pod limit with them; kubelet creates the latter with its own values, one after the other. Undefined if the
 * sandbox is the first one, or if nothing tells what the pod limit was for.
 *
 * Without an earlier container, the pod limit has to hold what the spec declares. Other sources do not tell a limit that was set on
 * purpose (a pod-level limit), or an ordinary init container.
 */
export async function replacedContainers(
  parts: ReplacedContainersParts,
  pod: PodDescription,
  container: NamedContainer,
  limits: EffectiveLimits,
): Promise<PodChange | undefined> {
  if (!isReplacement(pod)) return undefined;
  const listed = await parts.registry.listContainers(pod);
  const state = await readDeclaredPod(parts, pod, [], listed);
  const earlier = await earlierContainers(parts, pod);
  if (earlier.size > 0) return changeFrom(parts, pod, state, container, { limits, earlier });
  const isFirst = listed.every(({ id }) => id === container.containerId);
  if (!isFirst || state.declared?.source !== 'spec') return undefined;
  const none = state.declared.containers.map(({ name, id }): [string, EarlierContainer] => [
    name,
    { id: id ?? name, name, limits: NOTHING, exitCode: 0 },
  ]);
  return changeFrom(parts, pod, state, container, { limits, earlier: new Map(none) });
}

function changeFrom(
  { journal, registry }: ReplacedContainersParts,
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
 * Returns the declared containers, with those of earlier sandboxes that kubelet has yet to create if the source does not list them. One
 * that ended well may be an ordinary init container: the present pod limit shows whether it counts as one.
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
async function earlierContainers(
  parts: ReplacedContainersParts,
  pod: PodDescription,
): Promise<ReadonlyMap<string, EarlierContainer>> {
  const sandboxes = earlierSandboxes(parts.registry, pod);
  const listed = (await Promise.all(sandboxes.map((sandbox) => parts.registry.listContainers(sandbox)))).flat();
  const ran = listed
    .filter(({ state }) => state !== ContainerState.CREATED)
    .sort((one, other) => Number(one.created_at - other.created_at));
  const byName = new Map<string, EarlierContainer>();
  for (const { id, metadata } of ran) {
    const container = await parts.registry.describeContainer(id);
    const limits = storedLimits(container?.resources);
    const name = metadata?.name ?? '';
    byName.delete(name);
    if (container !== undefined && limits !== undefined)
      byName.set(name, { id, name, limits, exitCode: container.exitCode });
  }
  return byName;
}
