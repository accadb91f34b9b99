/** The outcomes of requests per pod, and the recent resizes, in memory only. */
export { PodOutcomes } from './outcomes.ts';
export type { PodOutcome } from './outcomes.ts';
export { RecentResizes } from './recent-resizes.ts';
export type { RecentResize, Recording } from './recent-resizes.ts';
