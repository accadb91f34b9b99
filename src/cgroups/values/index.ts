/** The values of cgroup files: their formats, limits and comparison, and CRI's numbers for them. Pure: opens no file. */
export { bitsOf, lastNumber } from './bitmap-list.ts';
export {
  MAX_CPU_SHARES,
  MIN_CPU_SHARES,
  NO_HUGE_PAGE_LIMIT,
  UNLIMITED_MEMORY,
  cpuMaxOfCri,
  cpuSharesOfCri,
  criOfCpuMax,
  criOfMemoryMax,
  criOfSwapMax,
  formulasOf,
  memoryMaxOfCri,
  sharesOfWeight,
  sharesToReport,
  swapMaxOfCri,
  weightMatchesShares,
  weightOfShares,
} from './conversions.ts';
export type { WeightFormula } from './conversions.ts';
export {
  DEFAULT_CPU_PERIOD,
  MAX_CPU_PERIOD,
  CPU_BURST,
  MAX_CPU_QUOTA,
  MIN_CPU_QUOTA,
  assertCpuMax,
  isSameCpuMax,
  parseCpuMax,
  parseCpuWeight,
} from './cpu.ts';
export {
  MIN_MEMORY_LIMIT,
  isSameLimit,
  wholePages,
  parseLimit,
  parseMemoryStat,
  parseOomKills,
  parseSize,
  unreclaimableOf,
} from './memory.ts';
export type { MemoryStat } from './memory.ts';
export { holdsSetting, restoringSetting } from './settings.ts';
export { assertUnified, isSameUnified, isUnifiedKey, sizeInBytes } from './unified.ts';
export { encodeWrite, isQuickWrite } from './write.ts';
export type { CgroupWrite } from './write.ts';
