/** Pods as they are declared: all containers with kind and state, whether or not they run, from the best source that knows them. */
export { amountsOf } from './amounts.ts';
export { declarePod } from './declare-pod.ts';
export type { DeclarePodParts } from './declare-pod.ts';
export type {
  Amounts,
  ContainerKind,
  DeclaredContainer,
  DeclaredPod,
  AppRestartPolicy,
  DeclaredVolume,
  QosClass,
  ResizePolicy,
  RestartPolicy,
} from './declared-pod.ts';
export { qosOfCgroup } from './qos-of-cgroup.ts';
export { noPodSpecs } from './pod-spec.ts';
export type { PodSpec, PodSpecs, SpecContainer } from './pod-spec.ts';
export { withRunning } from './with-running.ts';
