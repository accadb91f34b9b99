import {
  type CgroupPath,
  type CgroupTree,
  type SwapLimits,
  memoryMaxOfCri,
  restoringSetting,
  swapMaxOfCri,
} from '../../cgroups/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import { type Bytes, type Limit, bytes } from '../../core/quantities/index.ts';
import { swapAfter } from '../admission/index.ts';
import { type Limits, SWAP_MAX, readSettings, settingsIn, swapIn } from '../../sandbox/index.ts';

type Others = Pick<Limits, 'swap' | 'settings'>;

/**
 * Swap and settings of a container before and after a caller's update, as far as the runtime changes them. A value that nobody has
 * requested, and that the runtime overwrites with what it has stored, has two equal ends: the runtime may also not do so.
 */
export interface OtherValues {
  /** What restores the present values. */
  readonly before: Others;
  readonly after: Others;
}

/**
 * Returns what a caller's update changes in addition to memory, CPU and shares. The runtime also writes what it has
 * stored, and sets swap to the memory limit (none) when the request has memory and no swap (containerd
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
 * Returns the limit on swap that a caller's update lowers, by cgroup; undefined if it leaves the container the swap that it has. Memory
 * that reclaim has written to swap then could not go there again once it is used.
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
