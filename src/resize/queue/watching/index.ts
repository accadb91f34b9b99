/** Who follows deferred resizes: one stream of events for each client. */
export { ResizeWatch, isWatched } from './watch.ts';
export type { WatchedPod } from './watch.ts';
export { ResizeWatchers } from './watchers.ts';
