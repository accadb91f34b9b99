/**
 * cgroup v2: reads limits and usage, writes limits, finds the cgroups of pods and containers, and converts CRI's
 * numbers. No other folder opens a file under /sys/fs/cgroup.
 */
export { Busctl } from './busctl.ts';
export {
  type CgroupDriverName,
  containerCgroupIn,
  containerIdOf,
  driverOf,
  isBestEffort,
  isKubeletCgroup,
  kubeletPodCgroups,
  qosClassOf,
} from './drivers.ts';
export { type CgroupPath, isCgroupVanished, isFileMissing } from './file.ts';
export { type HeldUsage, type LowerUsageTree, lowerUsage } from './lower-usage.ts';
export { isMarkedHigh, type PreviousHigh, restoreMarkedHigh } from './memory-high.ts';
export { type MemoryUse, usageText } from './memory-use.ts';
export { cgroupOfPid, meminfoSize, procText } from './proc.ts';
export type { ReadWatch } from './read-watch.ts';
export type { SwapLimits } from './swap.ts';
export { DriverCgroupTree } from './systemd-tree.ts';
export { isRoundedInUnit, isSystemdUnit } from './systemd-units.ts';
export { type CgroupLimits, type CgroupLoad, CgroupTree, readLoad } from './tree.ts';
export {
  assertCpuMax,
  CPU_BURST,
  DEFAULT_CPU_PERIOD,
  MAX_CPU_PERIOD,
  MAX_CPU_QUOTA,
  MIN_CPU_QUOTA,
  MIN_MEMORY_LIMIT,
  wholePages,
} from './values/controller-files.ts';
export {
  cpuMaxOfCri,
  cpuSharesOfCri,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  formulasOf,
  MAX_CPU_SHARES,
  MIN_CPU_SHARES,
  memoryMaxOfCri,
  NO_HUGE_PAGE_LIMIT,
  sharesOfWeight,
  sharesToReport,
  swapMaxOfCri,
  UNLIMITED_MEMORY,
  weightMatchesShares,
  weightOfShares,
} from './values/conversions.ts';
export { restoringSetting } from './values/settings.ts';
export { assertUnified, isSameUnified, isUnifiedKey, sizeInBytes } from './values/unified.ts';
