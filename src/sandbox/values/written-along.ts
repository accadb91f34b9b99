import {
  type CgroupPath,
  type CgroupTree,
  CPU_BURST,
  memoryMaxOfCri,
  restoringSetting,
  type SwapLimits,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import { type Bytes, bytes, type Limit, microseconds } from '../../core/index.ts';
import type { ContainerDescription, LinuxContainerResources, PodDescription } from '../../runtime/index.ts';
import { swapAfter } from '../admission/swap-after.ts';
import type { Node } from '../node.ts';
import type { ContainerStep } from '../plan/step.ts';
import { containerChanges, loweredBurst } from '../plan/steps.ts';
import type { ContainerLimits, Limits, LiveContainer, PodState, Settings } from '../pods/pod-state.ts';
import { readSettings, SWAP_MAX, settingsIn, storedValues, swapIn } from '../pods/stored-limits.ts';
import { goingAlong, withPinned } from '../transaction/container-update.ts';
import type { DerivedSettings, DeriveSettings } from './pod-memory-qos.ts';

type Others = Pick<Limits, 'swap' | 'settings'>;

/**
 * Swap and settings of a container before and after a caller's update, as far as the runtime changes them. A value that
 * is not requested, but that the runtime overwrites with its stored value, has two equal ends, because the runtime may
 * also leave it unchanged.
 */
export interface OtherValues {
  /** The present values, for a rollback. */
  readonly before: Others;
  readonly after: Others;
}

/**
 * Returns the changes of a caller's update in addition to memory, CPU and shares. The runtime also writes its stored
 * values, and sets swap to the memory limit (none) if the request has memory but no swap (containerd
 * internal/cri/opts/spec_linux_opts.go, WithResources).
 *
 * @param memory the container's memory limit after the update
 */
export function otherValues(
  tree: CgroupTree,
  cgroup: CgroupPath,
  stored: LinuxContainerResources | undefined,
  asked: LinuxContainerResources | null,
  memory: Limit<Bytes>,
): OtherValues {
  const written = { ...settingsIn(stored), ...settingsIn(asked) };
  const found = readSettings(tree, cgroup, Object.keys(written));
  const requested = settingsIn(asked);
  const changes = Object.entries(written).flatMap(([file, value]) => {
    const present = found[file];
    if (present === undefined || tree.holdsSetting(file, value, present) === true) return [];
    const from = restoringSetting(file, value, present);
    return [{ file, from, to: file in requested ? value : from }];
  });
  const swap = SWAP_MAX in written ? undefined : tree.readSwapMax(cgroup);
  const swapThen = swap === undefined ? undefined : swapOf(stored, asked, memory);
  const isChanged = swap !== undefined && swapThen !== undefined && !tree.holds(swapThen, swap);
  return {
    before: {
      ...(isChanged && { swap }),
      settings: Object.fromEntries(changes.map(({ file, from }) => [file, from])),
    },
    after: {
      ...(isChanged && { swap: asksSwap(asked) ? swapThen : swap }),
      settings: Object.fromEntries(changes.map(({ file, to }) => [file, to])),
    },
  };
}

/**
 * Returns the swap limit that a caller's update lowers, by cgroup. Undefined if the update does not lower it. With a
 * lower limit, memory that reclaim has written to swap cannot return there once it was used.
 *
 * @param memory the container's memory limit after the update
 */
export function swapAfterUpdate(
  tree: CgroupTree,
  cgroup: CgroupPath,
  stored: LinuxContainerResources | undefined,
  asked: LinuxContainerResources,
  memory: Limit<Bytes>,
): SwapLimits | undefined {
  const now = tree.readSwapMax(cgroup);
  const written = { ...settingsIn(stored), ...settingsIn(asked) };
  if (now === undefined) return undefined;
  const text = written[SWAP_MAX];
  if (text !== undefined && tree.holdsSetting(SWAP_MAX, text, String(now)) === true) return undefined;
  const then = text ?? swapOf(stored, asked, memory);
  return then === undefined ? undefined : swapAfter(cgroup, { from: String(now), to: String(then) });
}

function swapOf(
  stored: LinuxContainerResources | undefined,
  asked: LinuxContainerResources | null,
  memory: Limit<Bytes>,
): Limit<Bytes> | undefined {
  if (asked !== null && asksSwap(asked)) {
    try {
      return swapMaxOfCri(asked.memory_swap_limit_in_bytes, memory);
    } catch {
      // The runtime rejects it.
      return undefined;
    }
  }
  const hasMemory = asked !== null && memoryMaxOfCri(asked.memory_limit_in_bytes) !== undefined;
  if (!hasMemory) return swapIn(stored);
  return memory === 'max' ? 'max' : bytes(0);
}

/** Whether a request sets swap by its own field. */
export const asksSwap = (request: LinuxContainerResources | null): boolean =>
  request !== null && request.memory_swap_limit_in_bytes !== 0n;

interface ValuesAlong {
  readonly state: PodState;
  readonly targets: readonly ContainerLimits[];
  /** The cgroups of the targets, by container id. */
  readonly cgroups: ReadonlyMap<string, CgroupPath>;
}

/**
 * Adds values that must be written along with the shim's own update to the state and to the targets of containers: with
 * each update, the runtime writes its stored values, and sets swap to none if it contains memory without swap.
 */
export async function withStoredValues(
  node: Node,
  pod: PodDescription,
  state: PodState,
  targets: readonly ContainerLimits[],
  all: readonly ContainerDescription[],
  derive: DeriveSettings,
): Promise<ValuesAlong> {
  const described = new Map(all.map((container) => [container.containerId, container]));
  const containers = new Map<string, LiveContainer>(state.containers.map((container) => [container.id, container]));
  const cgroups = new Map<string, CgroupPath>();
  const complete: ContainerLimits[] = [];
  for (const target of targets) {
    const container = described.get(target.id);
    const now = containers.get(target.id);
    const cgroup = container && (node.cgroups.stored(target.id) ?? (await node.cgroups.locate(container, pod)));
    if (now === undefined || container === undefined || cgroup === undefined) complete.push(target);
    else {
      cgroups.set(target.id, cgroup);
      const derived = derive(container, cgroup, target);
      const along = alongWith(node.tree, cgroup, settingsIn(container.resources), target, derived);
      containers.set(target.id, { ...now, ...along.now });
      complete.push(along.target);
    }
  }
  return { state: { ...state, containers: [...containers.values()] }, targets: complete, cgroups };
}

function alongWith(
  tree: CgroupTree,
  cgroup: CgroupPath,
  stored: Settings,
  target: ContainerLimits,
  derived: DerivedSettings,
): { readonly now: Pick<Limits, 'swap' | 'settings'>; readonly target: ContainerLimits } {
  const swap = tree.readSwapMax(cgroup);
  const kept = goingAlong(tree, cgroup, stored);
  // A finite memory limit without swap means no swap already.
  const hasSwap = swap !== undefined && target.memory !== undefined && !(swap === 0 && target.memory !== 'max');
  const wanted = withPinned(stored, {
    ...target,
    ...(hasSwap && { swap }),
    settings: { ...kept, ...burstAlong({ ...stored, ...kept }, target), ...derived.then, ...target.settings },
  });
  const found = { ...readSettings(tree, cgroup, Object.keys(wanted.settings)), ...derived.now };
  return {
    now: { ...(swap !== undefined && !(SWAP_MAX in stored) && { swap }), settings: found },
    target: wanted,
  };
}

/** Returns the runtime's stored burst if it exceeds the new quota: the runtime rewrites it with each update. */
function burstAlong(stored: Settings, { cpu }: Limits): Settings {
  const burst = stored[CPU_BURST];
  const to = burst === undefined ? undefined : loweredBurst(microseconds(Number(burst)), cpu);
  return to === undefined ? {} : { [CPU_BURST]: String(to) };
}

/** Returns the update of a container that does not run: the runtime stores the values. */
export function storedStep(container: ContainerDescription, desired: Limits, derive: DeriveSettings): ContainerStep[] {
  const { resources, containerId: id } = container;
  const now = storedValues(resources);
  if (now === undefined) return [];
  const { swap, settings } = now;
  const keepsSwap = swap !== undefined && !(swap === bytes(0) && desired.memory !== 'max');
  const { then } = derive(container, undefined, desired);
  const wanted = { ...desired, settings: { ...burstAlong(settings, desired), ...then, ...desired.settings } };
  const target = withPinned(settings, { id, ...wanted, ...(keepsSwap && { swap }) });
  const step = containerChanges({ id, ...now }, target);
  return step === undefined ? [] : [step];
}
