/** Memory reclaim before a limit is lowered. */
export { lowerUsage } from './lower-usage.ts';
export type { HeldUsage, LowerUsageResult, LowerUsageOptions, LowerUsageTree } from './lower-usage.ts';
export { isMarkedHigh, markedHigh, restoreMarkedHigh } from './memory-high.ts';
export type { PreviousHigh } from './memory-high.ts';
