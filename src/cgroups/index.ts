/**
 * cgroup v2: reads limits and usage, writes limits, finds the cgroups of pods and containers, and converts CRI's numbers. No other
 * folder opens a file under /sys/fs/cgroup.
 */
export { CgroupTree } from './tree.ts';
export type { CgroupLimits, Reclaimed, Written } from './tree.ts';
export { readLoad } from './load.ts';
export type { CgroupLoad } from './load.ts';
export { usageText } from './memory-use.ts';
export type { MemorySample, MemoryUse } from './memory-use.ts';
export type { SwapLimits } from './swap.ts';
export {
  DEFAULT_CPU_PERIOD,
  MAX_CPU_PERIOD,
  CPU_BURST,
  MAX_CPU_QUOTA,
  MAX_CPU_SHARES,
  MIN_CPU_QUOTA,
  MIN_CPU_SHARES,
  MIN_MEMORY_LIMIT,
  NO_HUGE_PAGE_LIMIT,
  UNLIMITED_MEMORY,
  assertCpuMax,
  assertUnified,
  cpuMaxOfCri,
  cpuSharesOfCri,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  formulasOf,
  isSameLimit,
  wholePages,
  isSameUnified,
  isUnifiedKey,
  sizeInBytes,
  memoryMaxOfCri,
  restoringSetting,
  sharesOfWeight,
  sharesToReport,
  swapMaxOfCri,
  weightMatchesShares,
  weightOfShares,
} from './values/index.ts';
export type { CgroupWrite, WeightFormula } from './values/index.ts';
export {
  cgroupDrivers,
  containerCgroupIn,
  containerIdOf,
  driverOf,
  expandSlice,
  isBestEffort,
  isKubeletCgroup,
  kubeletPodCgroups,
  qosClassOf,
} from './drivers.ts';
export type { CgroupDriverName } from './drivers.ts';
export { CGROUP_ROOT, CgroupVanished, isCgroupVanished, isFileMissing } from './file.ts';
export type { CgroupPath } from './file.ts';
export { isRoundedInUnit, isSystemdUnit } from './systemd-units.ts';
export type { UnitProperty } from './systemd-units.ts';
export { cgroupOfPid, cgroupVersion, meminfoSize, parseProcCgroup, procText } from './proc.ts';
export { Busctl } from './systemd/index.ts';
export type { Systemd } from './systemd/index.ts';
export type { UnitState } from './systemd/index.ts';
export { DriverCgroupTree } from './systemd/index.ts';
export { isMarkedHigh, lowerUsage, markedHigh, restoreMarkedHigh } from './reclaim/index.ts';
export type { LowerUsageResult } from './reclaim/index.ts';
export type { LowerUsageOptions } from './reclaim/index.ts';
export type { LowerUsageTree } from './reclaim/index.ts';
export type { HeldUsage, PreviousHigh } from './reclaim/index.ts';
export { Slots } from '../core/concurrency/index.ts';
export type { ReadWatch } from './read-watch.ts';
