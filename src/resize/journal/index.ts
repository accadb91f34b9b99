/** What outlives the process: transactions under way, allocated volume sizes, deferred requests. */
export { OpenTransaction, PodJournal } from './pod-journal.ts';
export type { JournalledTransaction, PreviousHigh } from './record.ts';
export { Journal } from './store.ts';
export type { AskedVolume, VolumeRecord } from './volume-record.ts';
