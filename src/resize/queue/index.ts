/** The resizes of whole pods over time: requests, states, retries, stored records and watchers. */
export { retryDelay } from './backoff.ts';
export type { ResizeStore } from './records.ts';
export { readRequested } from './requests/index.ts';
export type { RequestedPod, RequestedResources, Resize, ResizeEvent } from './requests/index.ts';
export { Resizes } from './resizes.ts';
export type { DryRun } from './resizes.ts';
export type { PodRank } from './retry-order.ts';
export { ResizeWatch } from './watching/index.ts';
