/**
 * The pods of this node in the API server: listed, then watched. Also the node's allocatable. Loaded only with
 * --kubeconfig: other folders import only its types.
 */
export { PodClaims } from './claims.ts';
export type { NodePodNames } from './claims.ts';
export { feedPods } from './feed.ts';
export type { PodAudience } from './audience.ts';
export { AllocatableStore, feedNode } from './node-feed.ts';
export { keyOf, volumeTexts, whyForeign } from './pod.ts';
export type { ApiPod, ApiPodIdentity } from './pod.ts';
export { podWatch } from './pod-watch.ts';
export { Reach } from './reach.ts';
export { SpecStore } from './spec-store.ts';
export { wait } from './wait.ts';
