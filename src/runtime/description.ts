import { type CpuShares, reportedShares } from '../core/quantities/numbers.ts';
import type { CgroupDriverName, LinuxContainerResources, Messages } from './messages.ts';

/**
 * The `info` of containerd's verbose status calls. It is JSON of its Go structures, so every field can be absent and
 * the type of each is checked.
 */

/** A pod as the backend describes it. */
export interface PodDescription {
  readonly sandboxId: string;
  readonly metadata: Omit<Messages['PodSandboxMetadata'], 'attempt'> & { readonly attempt?: number };
  /** The parent as in the CRI; empty if the pod has no cgroup of its own. */
  readonly cgroupParent: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** CPU shares of the pod at its creation; undefined if not reported. */
  readonly cpuShares: CpuShares | undefined;
  readonly overhead: DescribedResources;
}

export interface DescribedResources {
  readonly memoryBytes: number;
  readonly cpuQuotaMicroseconds: number;
  readonly cpuPeriodMicroseconds: number;
}

/** A container as the backend describes it. */
export interface ContainerDescription {
  readonly containerId: string;
  readonly sandboxId: string;
  readonly name: string;
  readonly state: number;
  /** 0 when it does not run. */
  readonly pid: number;
  /** Nanoseconds since the epoch; `finishedAt` is 0 when it has not ended. */
  readonly createdAt: bigint;
  readonly finishedAt: bigint;
  readonly exitCode: number;
  readonly resources: LinuxContainerResources | undefined;
}

/** Reads a verbose PodSandboxStatus. Returns undefined if it lacks the pod's configuration. */
export function describePod(response: Messages['PodSandboxStatusResponse']): PodDescription | undefined {
  const info = parseInfo(response.info);
  const config = object(info.config);
  const metadata = object(config.metadata);
  const linux = object(config.linux);
  if (response.status === null || Object.keys(metadata).length === 0) return undefined;
  // The JSON omits the attempt 0.
  const attempt = integer(metadata.attempt);
  return {
    sandboxId: response.status.id,
    metadata: {
      ...{ uid: text(metadata.uid), name: text(metadata.name), namespace: text(metadata.namespace) },
      ...(attempt > 0 && { attempt }),
    },
    cgroupParent: text(linux.cgroup_parent),
    annotations: strings(config.annotations),
    cpuShares: reportedShares(integer(object(linux.resources).cpu_shares)),
    overhead: describeResources(object(linux.overhead)),
  };
}

/** Reads the RunPodSandbox request that has created a pod. Returns undefined if it has no configuration. */
export function describeRequestedPod(
  sandboxId: string,
  { config }: Messages['RunPodSandboxRequest'],
): PodDescription | undefined {
  if (config === null || config.metadata === null) return undefined;
  const { metadata, annotations, linux } = config;
  const overhead = linux?.overhead ?? undefined;
  return {
    sandboxId,
    metadata,
    cgroupParent: linux?.cgroup_parent ?? '',
    annotations,
    cpuShares: reportedShares(linux?.resources?.cpu_shares ?? 0n),
    overhead: {
      memoryBytes: Number(overhead?.memory_limit_in_bytes ?? 0n),
      cpuQuotaMicroseconds: Number(overhead?.cpu_quota ?? 0n),
      cpuPeriodMicroseconds: Number(overhead?.cpu_period ?? 0n),
    },
  };
}

/** Reads a verbose ContainerStatus. Returns undefined if it does not name the container's pod. */
export function describeContainer(response: Messages['ContainerStatusResponse']): ContainerDescription | undefined {
  const info = parseInfo(response.info);
  const sandboxId = text(info.sandboxID);
  if (response.status === null || sandboxId === '') return undefined;
  return {
    containerId: response.status.id,
    sandboxId,
    name: response.status.metadata?.name ?? '',
    state: response.status.state,
    pid: integer(info.pid),
    createdAt: response.status.created_at,
    finishedAt: response.status.finished_at,
    exitCode: response.status.exit_code,
    resources: response.status.resources?.linux ?? undefined,
  };
}

/** Reads the cgroup driver (`SystemdCgroup` of the default runtime) from a verbose Status. Undefined if absent. */
export function describeCgroupDriver(response: Messages['StatusResponse']): keyof typeof CgroupDriverName | undefined {
  const config = object(parseJson(response.info.config));
  // The configuration of the CRI plugin (1.6 to 2.x), with the runtimes below `containerd`.
  const containerd = object(config.containerd);
  const runtimes = object(containerd.runtimes);
  const name = text(containerd.defaultRuntimeName) || text(containerd.default_runtime_name);
  const runtime = object(runtimes[name === '' ? 'runc' : name]);
  const systemd = object(runtime.options).SystemdCgroup;
  if (typeof systemd === 'boolean') return systemd ? 'SYSTEMD' : 'CGROUPFS';
  if (typeof config.systemdCgroup === 'boolean' && config.systemdCgroup) return 'SYSTEMD';
  // The JSON omits an option that is not set: runc's default is cgroupfs.
  return Object.keys(runtime).length > 0 ? 'CGROUPFS' : undefined;
}

function describeResources(resources: Record<string, unknown>): DescribedResources {
  return {
    memoryBytes: integer(resources.memory_limit_in_bytes),
    cpuQuotaMicroseconds: integer(resources.cpu_quota),
    cpuPeriodMicroseconds: integer(resources.cpu_period),
  };
}

function parseInfo(info: Record<string, string>): Record<string, unknown> {
  return object(parseJson(info.info));
}

function parseJson(json: string | undefined): unknown {
  if (json === undefined) return undefined;
  try {
    return JSON.parse(json) as unknown;
  } catch {
    // Treated as absent: the caller then forwards the request unchanged.
    return undefined;
  }
}

const object = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const integer = (value: unknown): number => (typeof value === 'number' && Number.isSafeInteger(value) ? value : 0);
const strings = (value: unknown): Record<string, string> =>
  Object.fromEntries(
    Object.entries(object(value)).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
