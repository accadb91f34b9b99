/**
 * cgroup v2: limits, use, and writes that are read back; where the cgroups of pods and containers lie; CRI's numbers in
 * the kernel's words. Nothing else in this project opens a file under /sys/fs/cgroup.
 */
export { CgroupTree } from './cgroup.ts';
export type {
  CgroupLimits,
  CgroupReader,
  CgroupWrite,
  CgroupWriter,
  MemoryGlance,
  MemoryUse,
  Reclaimed,
  Written,
} from './cgroup.ts';
export {
  cpuMaxOfCri,
  cpuSharesOfCri,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  formulasOf,
  memoryMaxOfCri,
  sharesOfWeight,
  sharesToReport,
  UNLIMITED_MEMORY,
  swapMaxOfCri,
  weightMatchesShares,
  weightOfShares,
} from './conversions.ts';
export type { WeightFormula } from './conversions.ts';
export {
  assertCpuMax,
  DEFAULT_CPU_PERIOD,
  MAX_CPU_PERIOD,
  MAX_CPU_QUOTA,
  MAX_CPU_WEIGHT,
  MIN_CPU_PERIOD,
  MIN_CPU_QUOTA,
  MIN_CPU_WEIGHT,
} from './cpu.ts';
export { cgroupDrivers, containerCgroupIn, containerIdOf, driverOf, expandSlice, isBestEffort } from './drivers.ts';
export type { CgroupDriver, CgroupDriverName } from './drivers.ts';
export { CGROUP_ROOT, CgroupVanished, isCgroupVanished, isFileMissing } from './file.ts';
export type { CgroupPath } from './file.ts';
export { Busctl } from './systemd.ts';
export type { Systemd, UnitState } from './systemd.ts';
export { DriverCgroupTree } from './systemd-tree.ts';
export type { DriverTreeOptions } from './systemd-tree.ts';
export { isRoundedInUnit, isUnit } from './units.ts';
export type { UnitProperty } from './units.ts';
export { MIN_MEMORY_LIMIT, isSameLimit } from './memory.ts';
export type { MemoryLimitFile } from './memory.ts';
export { ReclaimAhead } from './reclaim-ahead.ts';
export type { AheadTree, StepAhead } from './reclaim-ahead.ts';
export { makeRoom } from './reclaim.ts';
export type { RoomMade, RoomOptions, RoomTree } from './reclaim.ts';
export { Slots } from './slots.ts';
export { cgroupOfPid, cgroupVersion, parseProcCgroup } from './proc.ts';
export { assertUnified, assertUnifiedKey, isSameUnified } from './unified.ts';
