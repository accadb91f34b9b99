import {
  type CgroupPath,
  type CgroupTree,
  memoryMaxOfCri,
  restoringSetting,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import { type Bytes, type Limit, bytes } from '../../core/quantities/index.ts';
import { type Limits, SWAP_MAX, readSettings, settingsIn, swapIn } from '../../sandbox/index.ts';
import type { ContainerStep } from '../model/index.ts';

type Others = Pick<Limits, 'swap' | 'settings'>;

/** Swap and settings of a container before and after a caller's update, as far as the runtime changes them. */
export interface OtherValues {
  /** What restores the present values. */
  readonly before: Others;
  readonly after: Others;
}

/**
 * Returns what a caller's update changes in addition to memory, CPU and shares. The runtime also writes what it has stored, and sets swap to
 * the memory limit (none) when the request has memory and no swap (containerd internal/cri/opts/spec_linux_opts.go, WithResources).
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
  const changes = Object.entries(written).flatMap(([file, to]) => {
    const present = found[file];
    if (present === undefined || tree.holdsSetting(file, to, present) === true) return [];
    return [{ file, to, from: restoringSetting(file, to, present) }];
  });
  const swap = SWAP_MAX in written ? undefined : tree.readSwapMax(cgroup);
  const swapThen = swap === undefined ? undefined : swapAfter(stored, asked, memory);
  const isChanged = swap !== undefined && swapThen !== undefined && !tree.holds(swapThen, swap);
  return {
    before: {
      ...(isChanged && { swap }),
      settings: Object.fromEntries(changes.map(({ file, from }) => [file, from])),
    },
    after: {
      ...(isChanged && { swap: swapThen }),
      settings: Object.fromEntries(changes.map(({ file, to }) => [file, to])),
    },
  };
}

function swapAfter(
  stored: LinuxContainerResources | undefined,
  asked: LinuxContainerResources | null,
  memory: Limit<Bytes>,
): Limit<Bytes> | undefined {
  if (asked !== null && asked.memory_swap_limit_in_bytes !== 0n) {
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

/** Returns the part of a step that the caller has asked for. The rest is what the runtime has stored. */
export function onlyAsked(step: ContainerStep, asked: LinuxContainerResources | null): ContainerStep {
  const { swap, settings = {}, ...others } = step;
  const files = settingsIn(asked);
  const kept = Object.entries(settings).filter(([file]) => file in files);
  return {
    ...others,
    ...(swap && asked !== null && asked.memory_swap_limit_in_bytes !== 0n && { swap }),
    ...(kept.length > 0 && { settings: Object.fromEntries(kept) }),
  };
}
