/** Reports of the present state: pods, their status as JSON, the node's readiness and overview. */
export { type ReadPodViewParts, readPodView } from './read-pod-view.ts';
export { overviewOf } from './overview.ts';
export type { Overview, PodSummary } from './overview.ts';
export { podDirectory } from './pod-directory.ts';
export type { PodDirectory, PodRef } from './pod-directory.ts';
export { podInfo } from './pod-info.ts';
export type { PodInfoParts } from './pod-info.ts';
export type { ReadPodView, PendingKubeletResize, ActualValues, PodView } from './pod-view.ts';
export { viewsOf } from './pod-views.ts';
export { readinessOf } from './readiness.ts';
