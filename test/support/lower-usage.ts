import { type LowerUsageOptions, type LowerUsageResult, lowerUsage } from '../../src/cgroups/index.ts';
import { MiB, bytes } from '../../src/core/quantities/index.ts';
import type { FakeMemory } from './fake-memory.ts';

export const CGROUP = '/kubepods/pod1/c1';
/** The marked memory.high for a target of 64 MiB: an eighth of it below, and below a multiple of 256 KiB. */
export const HELD = 56 * MiB - 64 * 1024;
export const soon = (milliseconds: number): number => performance.now() + milliseconds;

/** Lowers the usage of a fake cgroup, within 30 s unless the options say otherwise. */
export const reclaimTo = (
  memory: FakeMemory,
  target: number,
  options: Partial<LowerUsageOptions> = {},
): Promise<LowerUsageResult> =>
  lowerUsage(memory, CGROUP, { target: bytes(target), deadline: soon(30_000), ...options });

export const never = (): Promise<never> => new Promise(() => undefined);
