/** What outlives the process: transactions under way, allocated volume sizes, deferred requests. */
export type { JournalledTransaction, PodRecord, PreviousHigh } from './record.ts';
export { Journal, RECHECK_MS } from './store.ts';
export type { JournalOptions, LoadedRecord, Readiness } from './store.ts';
export type { AskedVolume, VolumeRecord } from './volume-record.ts';
