/**
 * The CRI messages that the shim reads, as plain objects. Field names are those of the proto (snake case), int64 is bigint.
 * After decoding every field is present, with proto3's default if it was not on the wire.
 */

export interface LinuxContainerResources {
  cpu_period: bigint;
  cpu_quota: bigint;
  cpu_shares: bigint;
  memory_limit_in_bytes: bigint;
  oom_score_adj: bigint;
  cpuset_cpus: string;
  cpuset_mems: string;
  hugepage_limits: { page_size: string; limit: bigint }[];
  unified: Record<string, string>;
  memory_swap_limit_in_bytes: bigint;
}

export interface Metadata {
  name: string;
  uid: string;
  namespace: string;
  /** How many sandboxes the pod has had before this one. */
  attempt?: number;
}

export const ContainerState = { CREATED: 0, RUNNING: 1, EXITED: 2, UNKNOWN: 3 } as const;
export const SandboxState = { READY: 0, NOTREADY: 1 } as const;
export const CgroupDriverName = { SYSTEMD: 0, CGROUPFS: 1 } as const;

export interface ContainerStatus {
  id: string;
  metadata: { name: string } | null;
  state: number;
  created_at: bigint;
  finished_at: bigint;
  exit_code: number;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  resources: { linux: LinuxContainerResources | null } | null;
}

/** A sub-message that was not on the wire is null. */
export interface Messages {
  LinuxContainerResources: LinuxContainerResources;
  UpdateContainerResourcesRequest: {
    container_id: string;
    linux: LinuxContainerResources | null;
    windows: object | null;
    annotations: Record<string, string>;
  };
  UpdateContainerResourcesResponse: object;
  UpdatePodSandboxResourcesRequest: {
    pod_sandbox_id: string;
    overhead: LinuxContainerResources | null;
    resources: LinuxContainerResources | null;
  };
  UpdatePodSandboxResourcesResponse: object;
  RunPodSandboxRequest: {
    config: {
      metadata: Metadata | null;
      annotations: Record<string, string>;
      linux: {
        cgroup_parent: string;
        overhead: LinuxContainerResources | null;
        resources: LinuxContainerResources | null;
      } | null;
    } | null;
  };
  RunPodSandboxResponse: { pod_sandbox_id: string };
  RestorePodResponse: { pod_sandbox_id: string };
  RemovePodSandboxRequest: { pod_sandbox_id: string };
  PodSandboxStatusRequest: { pod_sandbox_id: string; verbose: boolean };
  PodSandboxStatusResponse: {
    status: { id: string; metadata: Metadata | null; state: number } | null;
    info: Record<string, string>;
    containers_statuses: ContainerStatus[];
  };
  PodSandboxStatsRequest: { pod_sandbox_id: string };
  ListContainerStatsRequest: { filter: { pod_sandbox_id: string } | null };
  ListPodSandboxRequest: object;
  ListPodSandboxResponse: { items: { id: string; state: number }[] };
  CreateContainerRequest: {
    pod_sandbox_id: string;
    config: { metadata: { name: string } | null; linux: { resources: LinuxContainerResources | null } | null } | null;
  };
  CreateContainerResponse: { container_id: string };
  StartContainerRequest: { container_id: string };
  RemoveContainerRequest: { container_id: string };
  ListContainersRequest: { filter: { pod_sandbox_id: string } | null };
  ListContainersResponse: {
    containers: {
      id: string;
      pod_sandbox_id: string;
      metadata: { name: string } | null;
      state: number;
      /** Nanoseconds since 1970. */
      created_at: bigint;
      labels: Record<string, string>;
      annotations: Record<string, string>;
    }[];
  };
  ContainerStatusRequest: { container_id: string; verbose: boolean };
  ContainerStatusResponse: {
    status: ContainerStatus | null;
    info: Record<string, string>;
  };
  ContainerEventResponse: { container_id: string; containers_statuses: ContainerStatus[] };
  VersionRequest: { version: string };
  VersionResponse: { runtime_name: string; runtime_version: string };
  StatusRequest: { verbose: boolean };
  StatusResponse: { info: Record<string, string> };
  RuntimeConfigRequest: object;
  RuntimeConfigResponse: { linux: { cgroup_driver: number } | null };
}

/** The input of `encode` (codec.ts). As in proto3, absent fields and defaults (0, "") are not written. */
export type Partially<T> = T extends (infer Item)[]
  ? Partially<Item>[]
  : T extends object
    ? { [Key in keyof T]?: Partially<T[Key]> }
    : T;
