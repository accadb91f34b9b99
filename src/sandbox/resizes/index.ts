/** Resizes of whole pods over time: what callers ask, the states that it goes through, and who watches. */
export { formatCpuMax, formatMemory, formatShares, invalid } from './amounts.ts';
export type { AskedAmounts, AskedPod, AskedResources, MemoryRequests } from './asked.ts';
export { readAsked } from './asked.ts';
export { retryDelay } from './backoff.ts';
export { identityOf, podDirectory } from './pods.ts';
export type { DescribePod, KubeletWants, LiveLimits, PodDirectory, PodIdentity, PodRef, PodView } from './pods.ts';
export type { ResizeRecord, ResizeStore } from './records.ts';
export { VOLUME_ANNOTATION } from '../../tmpfs/index.ts';
export type { VolumePolicy } from '../../tmpfs/index.ts';
export type { Resize, ResizeCounts, ResizeEvent, ResizeState } from './resize.ts';
export { Resizes, defaultBounds } from './resizes.ts';
export type { ResizeBounds, ResizeTerms, ResizesParts } from './resizes.ts';
export type { ResizeWatch } from './watch.ts';
