export { PodOutcomes } from './outcomes.ts';
export type { PodOutcome } from './outcomes.ts';
export { RecentResizes } from './recent-resizes.ts';
export type { RecentResize, Recording } from './recent-resizes.ts';
