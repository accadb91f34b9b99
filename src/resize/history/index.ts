/** The outcomes of requests per pod, the history of resizes, and the recent ones with their steps, in memory only. */
export { AdmittedRequests } from './admitted-requests.ts';
export { PodOutcomes } from './outcomes.ts';
export type { PodOutcome } from './outcomes.ts';
export { NewestValues, amountField, volumeField } from './newest-values.ts';
export type { PodField, Writer, WritersParts } from './newest-values.ts';
export { RecentResizes } from './recent-resizes.ts';
export type { RecentResize, Recording } from './recent-resizes.ts';
export { ResizeHistory, historyBounds } from './history.ts';
export type { HistoryEntry } from './history-entry.ts';
export { boundedChanges } from './change-recorder.ts';
export type { RequestReport } from './request-recorder.ts';
export { apiRequester, criRequester, requesterText } from './requester.ts';
export type { Requester } from './requester.ts';
