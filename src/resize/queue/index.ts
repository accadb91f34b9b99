/** The resizes of whole pods over time: requests, states, retries, stored records and watchers. */
export { retryDelay } from './backoff.ts';
export type { ResizeStore } from './records.ts';
export { readRequested } from './request.ts';
export type { RequestedPod, RequestedResources } from './request.ts';
export type { Resize, ResizeEvent } from './resize.ts';
export { Resizes } from './resizes.ts';
export type { PodRank, RankOf } from './retry-order.ts';
export { ResizeWatch } from './watch.ts';
