import { CPU_BURST, type CgroupPath, type CgroupTree } from '../../cgroups/index.ts';
import type { ContainerDescription, PodDescription } from '../../runtime/index.ts';
import { bytes, microseconds } from '../../core/quantities/index.ts';
import {
  type ContainerLimits,
  type Limits,
  type LiveContainer,
  type PodState,
  SWAP_MAX,
  type Settings,
  containerCgroup,
  readSettings,
  settingsIn,
  storedValues,
} from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';
import { containerChanges, loweredBurst } from '../plan/index.ts';
import { goingAlong, withPinned } from '../execute/index.ts';
import type { DerivedSettings, DeriveSettings } from './derived-memory-qos.ts';

interface ValuesAlong {
  readonly state: PodState;
  readonly targets: readonly ContainerLimits[];
  /** The cgroups of the targets, by container id. */
  readonly cgroups: ReadonlyMap<string, CgroupPath>;
}

/**
 * Adds to the state and to the targets of containers what has to go along with an update of the shim's own: the runtime writes what it
 * has stored with each update, and sets swap to none when it gets memory without swap.
 */
export async function withStoredValues(
  parts: { readonly tree: CgroupTree; readonly procRoot?: string },
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
    const cgroup = container && (await containerCgroup(container, pod, parts.procRoot));
    if (now === undefined || container === undefined || cgroup === undefined) complete.push(target);
    else {
      cgroups.set(target.id, cgroup);
      const derived = derive(container, cgroup, target);
      const along = alongWith(parts.tree, cgroup, settingsIn(container.resources), target, derived);
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

/** Returns the burst that the runtime has stored, if it is above the new quota: the runtime writes it again with each update. */
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
