/** Pods as they are: which pods and containers the node has, and what the kernel says of their limits. */
export {
  type CgroupLookup,
  containerCgroup,
  findCgroup,
  idsInCgroup,
  knownCgroup,
  locateCgroup,
  runningCgroup,
} from './container-cgroups.ts';
export { type KnownContainer, LIST_MS, type ListedContainers } from './container-lists.ts';
export { type DeclarePodParts, declarePod, qosOfCgroup } from './declare-pod.ts';
export {
  type Amounts,
  type AppRestartPolicy,
  type ContainerKind,
  type DeclaredContainer,
  type DeclaredPod,
  type DeclaredVolume,
  type QosClass,
  type ResizePolicy,
  withRunning,
} from './declared-pod.ts';
export { type FailOpen, failOpenReport, readOrFailOpen } from './fail-open.ts';
export { kernelResources } from './kernel-resources.ts';
export { type Subject, containerSubject, fullName, podName, podSubject } from './names.ts';
export { type PodIdentity, identityOf, isReplaced, isStaticPod, lockKeyOf, newestSandbox } from './pod-identity.ts';
export {
  type NodeAllocatable,
  type PodSpec,
  type PodSpecs,
  type SpecContainer,
  noNodeAllocatable,
  noPodSpecs,
} from './pod-spec.ts';
export type {
  ContainerLimits,
  EffectiveLimits,
  Limits,
  LiveContainer,
  MountedVolume,
  PodState,
  Settings,
  VolumeState,
} from './pod-state.ts';
export {
  NO_CPU_LIMIT,
  hasPodCgroup,
  namedCgroup,
  overheadOf,
  podCgroup,
  podWeight,
  readContainer,
  readDeclaredPod,
  readPod,
  readVolumes,
  withExactQuota,
} from './read-pod.ts';
export { type ContainersByPod, Registry } from './registry.ts';
export { amountsOf } from './runtime-containers.ts';
export {
  SWAP_MAX,
  type StoredValues,
  readSettings,
  settingsIn,
  storedLimits,
  storedValues,
  swapIn,
} from './stored-limits.ts';
export { limitsByName, volumeTotals } from './volumes.ts';
