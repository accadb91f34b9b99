/** Memory reclaim before a limit is lowered. */
export { ReclaimAhead } from './reclaim-ahead.ts';
export type { AheadTree, StepAhead } from './reclaim-ahead.ts';
export { lowerUsage } from './lower-usage.ts';
export type { LowerUsageResult, LowerUsageOptions, LowerUsageTree } from './lower-usage.ts';
export { isMarkedHigh, markedHigh } from './memory-high.ts';
