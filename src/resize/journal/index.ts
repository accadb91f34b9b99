/** The journal: what survives a restart of the shim, i.e. open transactions, allocated volume sizes and deferred requests. */
export { OpenTransaction } from './open-transaction.ts';
export { type Identity, PodJournal } from './pod-journal.ts';
export type { JournalledTransaction, PodRecord, PreviousHigh } from './record.ts';
export { Journal } from './store.ts';
export type { RequestedVolume, VolumeMount, VolumeRecord } from './volume-record.ts';
export type { UnansweredUpdates } from './unanswered.ts';
