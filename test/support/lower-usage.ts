import { type LowerUsageOptions, type LowerUsageResult, lowerUsage } from '../../src/cgroups/lower-usage.ts';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeClock } from './fake-clock.ts';
import type { FakeMemory } from './fake-memory.ts';

export const CGROUP = '/kubepods/pod1/c1';
/** The marked memory.high for a target of 64 MiB: an eighth lower, and slightly below a multiple of 256 KiB. */
export const HELD = 56 * MiB - 64 * 1024;
export const soon = (milliseconds: number): number => performance.now() + milliseconds;

/** Lowers the usage of a fake cgroup, within ten minutes unless the options say otherwise. */
export const reclaimTo = (
  memory: FakeMemory,
  target: number,
  options: Partial<LowerUsageOptions> = {},
): Promise<LowerUsageResult<void>> => {
  const lower = (): Promise<void> => Promise.resolve();
  return lowerUsage(memory, CGROUP, { target: bytes(target), deadline: soon(600_000), lower, ...options });
};

/** Lets virtual time pass until the work has ended. Its only waits are timers of the clock. */
export async function inVirtualTime<Result>(
  clock: FakeClock,
  work: Promise<Result>,
  limitMs = 60_000,
): Promise<Result> {
  let isOver = false;
  const end = (): void => void (isOver = true);
  void work.then(end, end);
  await clock.until(() => isOver, limitMs);
  return work;
}

/** Lowers the usage of fake cgroups in virtual time. The deadline passes once no other work is left. */
export async function reclaimWithin(
  milliseconds: number,
  target: number,
  memories: readonly FakeMemory[],
): Promise<PromiseSettledResult<LowerUsageResult<void>>[]> {
  const clock = new FakeClock();
  const deadline = clock.now() + milliseconds;
  const all = memories.map((memory) => reclaimTo(memory, target, { deadline, clock }));
  return inVirtualTime(clock, Promise.allSettled(all), milliseconds);
}

export const never = (): Promise<never> => new Promise(() => undefined);
