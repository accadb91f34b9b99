/** The client of containerd: its socket, the CRI messages, and the verbose status. */

export { ANSWER_MS, Backend, type CallOptions, MAX_MESSAGE_BYTES, runtimePath, SHIM_STATUS_PATH } from './backend.ts';
export { isNeverSent, isNotFound, isNotServing, isUnanswered, isUnimplemented } from './backend-errors.ts';
export { BackendCgroupDriver } from './cgroup-driver.ts';
export { decode, encode } from './codec.ts';
export {
  infoEntry,
  type PlacedStatus,
  type ReportedResources,
  type ReportedStatus,
  readContainerId,
  readContainerStatus,
  readContainerStatuses,
  withResources,
  withResourcesOfStatuses,
} from './container-status.ts';
export {
  type ContainerDescription,
  describeCgroupDriver,
  describeContainer,
  describePod,
  describeRequestedPod,
  type PodDescription,
} from './description.ts';
export {
  CgroupDriverName,
  ContainerState,
  type Decoded,
  type LinuxContainerResources,
  type Messages,
  type Partially,
  SandboxState,
} from './messages.ts';
