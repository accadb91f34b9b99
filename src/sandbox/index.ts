/** Pods as they are: which pods and containers the node has, and what the kernel says of their limits. */
export type { FailOpen } from './fail-open.ts';
export {
  containerCgroup,
  findCgroup,
  idsInCgroup,
  knownCgroup,
  locateCgroup,
  runningCgroup,
} from './container-cgroups.ts';
export type { CgroupLookup } from './container-cgroups.ts';
export { namedCgroup, withExactQuota } from './exact-quota.ts';
export { amountsOf, declarePod, noPodSpecs, qosOfCgroup, withRunning } from './declared/index.ts';
export type {
  Amounts,
  ContainerKind,
  DeclarePodParts,
  DeclaredContainer,
  DeclaredPod,
  AppRestartPolicy,
  DeclaredVolume,
  PodSpec,
  PodSpecs,
  QosClass,
  ResizePolicy,
  RestartPolicy,
  SpecContainer,
} from './declared/index.ts';
export { kernelResources } from './kernel-resources.ts';
export { limitsByName } from './limits-by-name.ts';
export { readSettings, settingsIn, storedLimits, storedValues, SWAP_MAX, swapIn } from './limits/index.ts';
export type { ContainerLimits, EffectiveLimits, Limits, Settings, StoredValues } from './limits/index.ts';
export { containerSubject, fullName, podName, podSubject } from './names.ts';
export type { Subject } from './names.ts';
export { noNodeAllocatable } from './node-allocatable.ts';
export type { NodeAllocatable } from './node-allocatable.ts';
export { identityOf, isReplaced, isStaticPod, lockKeyOf, newestSandbox } from './pod-identity.ts';
export type { PodIdentity } from './pod-identity.ts';
export type { LiveContainer, MountedVolume, PodState, VolumeState } from './pod-state.ts';
export { podWeight } from './pod-weight.ts';
export { NO_CPU_LIMIT, hasPodCgroup, overheadOf, podCgroup, readContainer, readPod, readVolumes } from './read-pod.ts';
export { readDeclaredPod } from './read-declared-pod.ts';
export { LIST_MS } from './container-lists.ts';
export { Registry } from './registry.ts';
export type { ContainersByPod, KnownContainer, ListedContainers } from './registry.ts';
export { volumeTotals } from './volume-totals.ts';
