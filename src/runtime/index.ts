/** The client of containerd: its socket, the CRI messages, and the verbose status. */
export { isNeverSent, isNotFound, isNotServing, isUnanswered, isUnimplemented } from './backend-errors.ts';
export { ANSWER_MS, Backend, type CallOptions, MAX_MESSAGE_BYTES, SHIM_STATUS_PATH, runtimePath } from './backend.ts';
export { BackendCgroupDriver } from './cgroup-driver.ts';
export { decode, encode } from './codec.ts';
export {
  type PlacedStatus,
  type ReportedResources,
  type ReportedStatus,
  readContainerStatus,
  readContainerStatuses,
  withInfo,
  withResources,
  withResourcesOfStatuses,
} from './container-status.ts';
export {
  type ContainerDescription,
  type PodDescription,
  describeCgroupDriver,
  describeContainer,
  describePod,
  describeRequestedPod,
} from './description.ts';
export {
  CgroupDriverName,
  ContainerState,
  type LinuxContainerResources,
  type Messages,
  type Partially,
  SandboxState,
} from './messages.ts';
