/** What is on the node, and how it is resized. */
export type { FailOpen } from './fail-open.ts';
export { hasDoneItsInit } from './init-containers.ts';
export { findCgroup, kernelResources } from './kernel-resources.ts';
export { limitsByName } from './limits-by-name.ts';
export { containerNamed, podNamed } from './names.ts';
export type { Named } from './names.ts';
export { identityOf } from './pod-identity.ts';
export type { PodIdentity } from './pod-identity.ts';
export type { ContainerState, MountedVolume, PodState, VolumeState } from './pod-state.ts';
export { podWeight } from './pod-weight.ts';
export {
  NO_CPU_LIMIT,
  containerCgroup,
  hasPodCgroup,
  podCgroup,
  readContainer,
  readPod,
  readVolumes,
} from './read-pod.ts';
export { Registry } from './registry.ts';
export { storedLimits } from './stored-limits.ts';
export type { StoredLimits } from './stored-limits.ts';
export { volumeTotals } from './volume-totals.ts';
