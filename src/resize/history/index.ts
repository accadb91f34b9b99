/** The outcomes of requests per pod, and the recent resizes, in memory only. */
export { AdmittedRequests } from './admitted-requests.ts';
export { PodOutcomes } from './outcomes.ts';
export type { PodOutcome } from './outcomes.ts';
export { NewestValues, amountField, volumeField } from './newest-values.ts';
export type { PodField, Writer, WritersParts } from './newest-values.ts';
export { RecentResizes } from './recent-resizes.ts';
export type { RecentResize, Recording } from './recent-resizes.ts';
